// An upstream that streams, and a load that checks every chunk of what comes back: neither is to be the
// bottleneck of a proxy between them. `gatewayload upstream PORTFILE` and `gatewayload load ...`.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type body struct {
	User     string `json:"user"`
	Messages []struct {
		Content string `json:"content"`
	} `json:"messages"`
	Gap    float64 `json:"gap"`
	Chunks int     `json:"chunks"`
	Faults float64 `json:"faults"`
}

// fault says how an upstream fails a request, from its name alone, so that the load knows what must come of it.
func fault(name string, share float64) string {
	hash := fnv.New32a()
	hash.Write([]byte(name))
	drawn := float64(hash.Sum32()%100000) / 100000
	if drawn >= share {
		return ""
	}
	return []string{"500", "429", "cut", "dropped"}[int(4*drawn/share)]
}

// drop ends the connection of an answer as a crash does.
func drop(w http.ResponseWriter) {
	if link, _, err := w.(http.Hijacker).Hijack(); err == nil {
		link.Close()
	}
}

// marker is the word after "the rule of" in what the model was told, or none.
func marker(asked body) string {
	for _, message := range asked.Messages {
		if _, after, found := strings.Cut(message.Content, "the rule of "); found {
			return strings.Fields(after)[0]
		}
	}
	return "none"
}

func serve(portFile string) {
	handler := http.NewServeMux()
	handler.HandleFunc("/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var asked body
		raw, _ := io.ReadAll(r.Body)
		if json.Unmarshal(raw, &asked) != nil {
			http.Error(w, "no JSON", 400)
			return
		}
		told := marker(asked)
		if told == "hang" {
			<-r.Context().Done()
			return
		}
		fails := fault(asked.User, asked.Faults)
		switch fails {
		case "500":
			http.Error(w, "the upstream's own error", 500)
			return
		case "429":
			w.Header().Set("Retry-After", "7")
			http.Error(w, "the upstream's own limit", 429)
			return
		case "dropped":
			drop(w)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Told", told)
		flusher := w.(http.Flusher)
		began := time.Now()
		for i := 0; i < asked.Chunks; i++ {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s %s %d\"}}]}\n\n", asked.User, told, i)
			flusher.Flush()
			if fails == "cut" && i == asked.Chunks/2 {
				drop(w)
				return
			}
			due := began.Add(time.Duration(float64(i+1) * asked.Gap * float64(time.Millisecond)))
			if wait := time.Until(due); wait > 0 {
				time.Sleep(wait)
			}
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	port := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
	if os.WriteFile(portFile+".new", []byte(port), 0o644) != nil || os.Rename(portFile+".new", portFile) != nil {
		panic("no port file")
	}
	panic(http.Serve(listener, handler))
}

type outcome struct {
	first, total float64
	late         float64
	wrong        string
	failed       string // as the upstream did, and said to be so
}

// one request; wrong says what is not as it must be.
func one(client *http.Client, url, key, name string, gap, faults float64, chunks int, names map[string]string) (out outcome) {
	message := map[string]string{"role": "user", "content": "what is asked, at some length: " + strings.Repeat("words ", 100)}
	payload, _ := json.Marshal(map[string]any{
		"model": "m", "stream": true, "user": name, "gap": gap, "chunks": chunks, "faults": faults, "messages": []any{message},
	})
	request, _ := http.NewRequest("POST", url, bytes.NewReader(payload))
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		out.wrong = "no answer: " + cause(err)
		return
	}
	defer response.Body.Close()
	fails := fault(name, faults)
	if response.StatusCode != 200 {
		raw, _ := io.ReadAll(response.Body)
		said, after := string(raw), response.Header.Get("Retry-After")
		switch {
		case fails == "500" && response.StatusCode == 500 && said == "the upstream's own error\n",
			fails == "429" && response.StatusCode == 429 && after == "7",
			fails == "dropped" && response.StatusCode == 502 && strings.Contains(said, "no_answer"):
			out.failed = fails
		case (response.StatusCode == 429 || response.StatusCode == 503) && after != "":
			out.wrong = "come again: " + response.Status
		default:
			out.wrong = response.Status
		}
		return
	}
	told := response.Header.Get("X-Told")
	if digest := response.Header.Get("X-Combee-Digest"); digest != "" && names[digest[:min(12, len(digest))]] != told {
		out.wrong = "another playbook than the header says"
		return
	}
	reader, seen, done := bufio.NewReader(response.Body), 0, false
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			if fails == "cut" && err != io.EOF && seen == chunks/2+1 {
				out.failed = fails
				return
			}
			if err != io.EOF {
				out.wrong = "broke off: " + cause(err)
				return
			}
			break
		}
		if seen == 0 && out.first == 0 {
			out.first = time.Since(began).Seconds()
		}
		if strings.HasPrefix(line, "data: {\"choices\"") && strings.Contains(line, "content") {
			if !strings.Contains(line, fmt.Sprintf("\"%s %s %d\"", name, told, seen)) {
				out.wrong = "a chunk of another answer"
				return
			}
			seen++
		}
		done = done || line == "data: [DONE]\n"
	}
	out.total = time.Since(began).Seconds()
	if fails != "" {
		out.wrong = "an answer where the upstream gave none"
	} else if seen != chunks || !done {
		out.wrong = fmt.Sprintf("%d of %d chunks", seen, chunks)
	}
	return
}

// cause is the innermost error, without addresses.
func cause(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

func quantile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return 1000 * sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func load() {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	url, key := flags.String("url", "", ""), flags.String("key", "", "")
	rate := flags.Float64("rate", 200, "requests a second; 0: as fast as workers can")
	workers := flags.Int("workers", 32, "at once, with rate 0")
	seconds, gap := flags.Float64("seconds", 5, ""), flags.Float64("gap", 2, "ms between chunks")
	chunks := flags.Int("chunks", 20, "of an answer")
	fresh := flags.Bool("fresh", false, "a new connection for each request")
	faults := flags.Float64("faults", 0, "share of requests that the upstream fails")
	from := flags.String("from", "127.0.0.1", "address that connections come from")
	ready := flags.String("ready", "", "file of the addresses, one a line, of which each new connection takes the next")
	clients := flags.Int("clients", 1, "pools of connections")
	known := flags.String("names", "", "digest12=marker,...")
	_ = flags.Parse(os.Args[2:])
	names := map[string]string{"none": "none"}
	for _, pair := range strings.Split(*known, ",") {
		if digest, name, found := strings.Cut(pair, "="); found {
			names[digest] = name
		}
	}
	dialer, dialled := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(*from)}}, atomic.Int64{}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if *ready != "" {
			raw, _ := os.ReadFile(*ready)
			addresses := strings.Fields(string(raw))
			address = addresses[int(dialled.Add(1))%len(addresses)]
		}
		return dialer.DialContext(ctx, network, address)
	}
	pools := make([]*http.Client, *clients)
	for at := range pools {
		transport := &http.Transport{MaxIdleConnsPerHost: 512, MaxIdleConns: 512, DialContext: dial, DisableKeepAlives: *fresh}
		pools[at] = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	}
	var lock sync.Mutex
	var group sync.WaitGroup
	var outcomes []outcome
	began := time.Now()
	ask := func(number int, due time.Time) {
		late := time.Since(due).Seconds()
		out := one(pools[number%len(pools)], *url, *key, fmt.Sprintf("r%d", number), *gap, *faults, *chunks, names)
		out.late = late
		lock.Lock()
		outcomes = append(outcomes, out)
		lock.Unlock()
	}
	if *rate > 0 {
		for number := 0; number < int(*rate**seconds); number++ {
			due := began.Add(time.Duration(float64(number) / *rate * float64(time.Second)))
			time.Sleep(time.Until(due))
			group.Add(1)
			go func() { defer group.Done(); ask(number, due) }()
		}
	} else {
		for worker := 0; worker < *workers; worker++ {
			group.Add(1)
			go func() {
				defer group.Done()
				for number := worker; time.Since(began).Seconds() < *seconds; number += *workers {
					ask(number, time.Now())
				}
			}()
		}
	}
	group.Wait()
	took := time.Since(began).Seconds()
	var first, total []float64
	wrong, failed, latest := map[string]int{}, map[string]int{}, 0.0
	for _, out := range outcomes {
		latest = max(latest, out.late)
		if out.wrong != "" {
			wrong[out.wrong]++
			continue
		}
		if out.failed != "" {
			failed[out.failed]++
			continue
		}
		first, total = append(first, out.first), append(total, out.total)
	}
	sort.Float64s(first)
	sort.Float64s(total)
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"asked": len(outcomes), "wrong": wrong, "failed": failed, "seconds": took, "total": total, "first": first,
		"latestStartMs": 1000 * latest, "p50": quantile(total, 0.5), "p99": quantile(total, 0.99),
	})
}

func main() {
	if os.Args[1] == "upstream" {
		serve(os.Args[2])
	}
	load()
}
