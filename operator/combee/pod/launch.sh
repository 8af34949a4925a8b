# The first process of a user's container: launch.sh END PROGRAM ARGUMENT...
# It waits for a rollout, and tells in the folder END that it is there, that it began, the program's last words, and last
# its exit code. Run by the busybox beside it, so that the user's image needs no shell.
here=${0%/*}
busybox=$here/busybox
end=$1
program=$2
shift 2
# Beside its children, so that it hears that the pod is to end.
trap 'exit 143' TERM
: >"$end/there"
until [ -e "$here/env" ]; do "$busybox" sleep 0.2; done
. "$here/env"
# By its path, since a shell that has programs of its own would take those.
case $program in
  */*) ;;
  *)
    IFS=:
    for folder in $PATH; do
      if [ -x "$folder/$program" ] && [ ! -d "$folder/$program" ]; then
        program=$folder/$program
        break
      fi
    done
    unset IFS
    ;;
esac
"$busybox" mkfifo "$end/words"
"$busybox" tail -c 4096 <"$end/words" >"$end/said" &
tail=$!
: >"$end/begun"
"$program" "$@" </dev/null >"$end/words" 2>&1 &
wait $!
code=$?
# As the first process of a container it ends what the program left running, which would keep the words open.
if [ $$ = 1 ]; then
  for round in 1 2 3 4 5; do
    for folder in /proc/[0-9]*; do
      process=${folder#/proc/}
      [ "$process" = 1 ] || [ "$process" = "$tail" ] || kill -9 "$process"
    done
  done 2>/dev/null
fi
wait "$tail"
echo "$code" >"$end/code.part"
"$busybox" mv "$end/code.part" "$end/code"
