// Health of objects as GitOps tools see it, by those tools' own libraries: kstatus, Flux's expressions, and a Lua
// machine that is set up as Argo CD sets up its own. JSON in, JSON out.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	luajson "layeh.com/gopher-json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type question struct {
	Lua     map[string]string                           `json:"lua"`
	Flux    map[string]kustomize.HealthCheckExpressions `json:"flux"`
	Objects []json.RawMessage                           `json:"objects"`
}

type answer struct {
	Kstatus string `json:"kstatus"`
	Flux    string `json:"flux"`
	Argo    string `json:"argo"`
	Message string `json:"message"`
}

type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	answers, err := answerAll()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answerAll() ([]answer, error) {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return nil, err
	}
	answers := []answer{}
	for _, raw := range asked.Objects {
		// As the tools read it: whole numbers are int64.
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		one, err := answerOne(asked, object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", object.GetName(), err)
		}
		answers = append(answers, one)
	}
	return answers, nil
}

func answerOne(asked question, object *unstructured.Unstructured) (answer, error) {
	seen, err := status.Compute(object)
	if err != nil {
		return answer{}, err
	}
	argo, err := argoHealth(asked.Lua[object.GetKind()], object)
	if err != nil {
		return answer{}, err
	}
	flux, err := fluxHealth(asked.Flux, object)
	return answer{string(seen.Status), flux, argo.Status, argo.Message}, err
}

// fluxHealth is kstatus where there is no expression for the kind, as in Flux. An expression that cannot be evaluated is
// Unknown to
// Flux, which asks again until the timeout.
func fluxHealth(all map[string]kustomize.HealthCheckExpressions, object *unstructured.Unstructured) (string, error) {
	expressions, ok := all[object.GetKind()]
	if !ok {
		seen, err := status.Compute(object)
		return string(seen.Status), err
	}
	evaluator, err := cel.NewStatusEvaluator(&expressions)
	if err != nil {
		return "", err
	}
	seen, err := evaluator.Evaluate(context.Background(), object)
	if err != nil {
		return string(status.UnknownStatus), nil
	}
	return string(seen.Status), nil
}

// argoHealth runs a script with the libraries that Argo CD opens: base, table and package, no strings.
func argoHealth(script string, object *unstructured.Unstructured) (health, error) {
	machine := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer machine.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		call := lua.P{Fn: machine.NewFunction(open), Protect: true}
		if err := machine.CallByParam(call, lua.LString(name)); err != nil {
			return health{}, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	machine.SetContext(ctx)
	machine.SetGlobal("obj", luajson.DecodeValue(machine, plain(object.Object)))
	if err := machine.DoString(script); err != nil {
		return health{}, err
	}
	encoded, err := luajson.Encode(machine.Get(-1))
	if err != nil {
		return health{}, err
	}
	var seen health
	if err := json.Unmarshal(encoded, &seen); err != nil {
		return health{}, err
	}
	if seen.Status == "" {
		return health{}, errors.New("the script gave no status")
	}
	return seen, nil
}

// plain has floats for whole numbers, which is what Lua knows.
func plain(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := map[string]any{}
		for key, inner := range value {
			copied[key] = plain(inner)
		}
		return copied
	case []any:
		copied := []any{}
		for _, inner := range value {
			copied = append(copied, plain(inner))
		}
		return copied
	case int64:
		return float64(value)
	}
	return value
}
