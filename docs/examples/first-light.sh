#!/bin/sh
# Captures docs/first-light-*.txt: what a newcomer sees, from an empty directory to a drained datacenter.
#     sh first-light.sh REPOSITORY > transcript.txt 2>&1
# Everything runs on this machine; the stack is stopped at the end.
set -eu

say() {
    printf '\n$ %s\n' "$*"
    sh -c "$*"
}

seconds() { date +%s; }

printf '# %s, %s, %s\n' "$(id -un)" "$(python3 --version)" "$(uname -sm)"
say "git clone --quiet $1 meridian"
cd meridian

printf '\n$ ./dev up\n'
began=$(seconds)
./dev up > ../up.txt 2>&1 &
UP=$!
trap 'kill -INT $UP 2>/dev/null || true' EXIT
until grep -q 'All of this as JSON' ../up.txt; do
    kill -0 $UP || { cat ../up.txt; exit 1; }
    sleep 0.2
done
sleep 1
cat ../up.txt
printf '# from the clone to the panel, installation included: %s s\n' "$(($(seconds) - began))"

printf '\n# A second shell. The curl line as it was printed:\n'
sed -n '/^curl -N/,/^"messages"/p' ../up.txt > ../curl.sh
printf '$ '; cat ../curl.sh
sh ../curl.sh 2>/dev/null

printf '\n# The Python snippet as it was printed:\n'
sed -n '/^from openai/,/^print()/p' ../up.txt > ../snippet.py
say ".venv/bin/python ../snippet.py"

say "./dev run usage"
before=$(./dev run usage -o json | .venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)["total"]["requests"])')

printf '\n# Fifty parallel streams, and a drain while they run:\n'
printf '$ .venv/bin/python docs/examples/fifty_streams.py &\n'
.venv/bin/python docs/examples/fifty_streams.py > ../streams.txt 2>&1 &
STREAMS=$!
sleep 2
say "./dev run drain us-east-1 --reason test --wait"
wait $STREAMS
cat ../streams.txt

sleep 2
say "./dev run status"
say "./dev run usage"
after=$(./dev run usage -o json | .venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)["total"]["requests"])')
printf '# records of the fifty streams: %s\n' "$((after - before))"
[ "$((after - before))" -eq 50 ]

say "./dev run restore us-east-1 --reason 'test over' --wait"

printf '\n# Ctrl-C in the first shell:\n'
kill -INT $UP
wait $UP || true
trap - EXIT
tail -n 2 ../up.txt
