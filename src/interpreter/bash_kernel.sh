# The Bash side of an interpreter: one shell that lives on between cells.
#
# Speaks the protocol of docs/kernels.md on descriptor 0: requests come as a line "<op> <id> <length>" and that many
# bytes, answers go as one JSON object per line. Variables, functions, the folder and options stay from cell to cell.
exec {__channel}<&0
exec 0</dev/null
__count=0
__say() { printf '%s\n' "$1" >&"$__channel"; }

# Only what is text: JSON has no other names.
__text() { LC_ALL=C.UTF-8 grep -ax "$@" '.*'; }

# As JSON's strings want it.
__quote() {
  local LC_ALL=C text=$1
  text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\n'/\\n} text=${text//$'\r'/\\r} text=${text//$'\t'/\\t}
  text=${text//[$'\x01'-$'\x08'$'\x0b'$'\x0c'$'\x0e'-$'\x1f']/?}
  printf '"%s"' "$text"
}

__files() {
  local list='' name
  while IFS= read -r -d '' name; do
    list+="${list:+,}$(__quote "$name")"
  done < <(find "${AGENT_SANDBOX_WORKSPACE:-/workspace}" -xdev -name .git -prune -o -type f -newerct "@$1" -print0 2>/dev/null | __text -z | head -z -n 200)
  printf '[%s]' "$list"
}

__execute() {
  local __id=$1 __status=0
  trap 'return 130' INT
  eval "$2" {__channel}>&-
}

# Names that could stand at the end of a line.
__complete() {
  local word=${2##*[[:space:];|&(\$\"\']} list='' name
  while IFS= read -r name; do
    list+="${list:+,}$(__quote "${2%"$word"}$name")"
  done < <(compgen -A variable -A function -A command -A file -- "$word" 2>/dev/null | __text | sort -u | head -n 200)
  __say '{"event":"completions","id":'"$1"',"matches":['"$list"']}'
}

__say '{"event":"ready","language":"bash","version":"'"${BASH_VERSION%%(*}"'","pid":'"$$"'}'
while IFS=' ' read -r -u "$__channel" __op __id __length; do
  __code=
  # Bytes, not letters: the length counts those.
  LC_ALL=C IFS= read -r -N "$__length" -u "$__channel" __code
  [ "$__op" != complete ] || __complete "$__id" "$__code"
  [ "$__op" != environ ] || eval "$__code"
  [ "$__op" = execute ] || continue
  __count=$((__count + 1))
  __began=$((${EPOCHREALTIME//[.,]/} - 20000))  # The clock of files is coarse.
  __execute "$__id" "$__code"
  __status=$?
  trap - INT
  if [ $__status -ne 0 ]; then
    __say '{"event":"error","id":'"$__id"',"name":"ExitStatus","value":"'"$__status"'","traceback":"the last command ended with '"$__status"'"}'
  fi
  __say '{"event":"done","id":'"$__id"',"count":'"$__count"',"files":'"$(__files "$((__began / 1000000)).$(printf %06d $((__began % 1000000)))")"'}'
done
