# Arguments: standard input, limits (cpu_seconds, open_files, file_bytes in 512 bytes,
# processes, memory_bytes in 1024 bytes; "-" is none), command line.
fail() {
	{ echo "millrace: start failed: $1" >/dev/termination-log; } 2>/dev/null
	echo "millrace: start failed: $1" >&2
	exit 127
}
# A hard limit that is lower already stays.
limit() {
	[ "$3" = - ] && return
	ulimit -S "-$2" "$3" 2>/dev/null && ulimit -H "-$2" "${4:-$3}" 2>/dev/null && return
	hard=$(ulimit -H "-$2" 2>/dev/null) && [ "$hard" != unlimited ] && [ "$hard" -le "$3" ] && return
	fail "the shell of the image cannot set limits.$1"
}
in=$1
limit cpu_seconds t "$2" $(($2 + 1))
limit open_files n "$3"
limit file_bytes f "$4"
processes=u
(ulimit -u) >/dev/null 2>&1 || processes=p
limit processes $processes "$5"
memory=$6
shift 6
case $1 in
*/*) [ -x "$1" ] && [ ! -d "$1" ] ;;
*) command -v "$1" >/dev/null 2>&1 ;;
esac || fail "there is no program $1"
limit memory_bytes v "$memory"
exec "$@" <"$in"
