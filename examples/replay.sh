#!/bin/sh
# Some work in a session, done again in another to see whether it repeats. The last step cannot: it reads the clock.
set -eu
sandbox=${AGENT_SANDBOX:-agent-sandbox}
id=$($sandbox session create)
steps=$(mktemp)
trap '$sandbox session rm "$id"; rm -f "$steps"' EXIT

$sandbox exec --session "$id" -- sh -c 'seq 3 > numbers'
echo 'sum(map(int, open("numbers")))' | $sandbox python --session "$id"
$sandbox exec --session "$id" -- date +%N

$sandbox session history "$id" --jsonl "$steps"
$sandbox replay "$steps" || echo "It ends with $?, and all before is the same."
