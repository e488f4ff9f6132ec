# Passes on what go test -v prints, and repeats why a test has failed right before the line
# that says that it has: between the two lie the logs of every process of the test, which
# are hundreds of lines where a test is one of the whole, and a reader who is shown the
# end of it would not see its cause. The reasons are those of testify, one line each: what
# is wrong, and behind it where.

function keep(   at) {
	at = index(reason, " Error:")
	if (at > 0 && kept < 6)
		reasons[kept++] = substr("why:" substr(reason, at + 7), 1, 1000) " (" substr(reason, 1, min(at - 1, 600)) ")"
	reason = ""
}
function min(a, b) { return a < b ? a : b }

reason != "" && !/^ +\t/ { keep() }
/^ +\tError Trace:/ { keep() }
/^ +\tError Trace:/ || reason != "" {
	line = $0
	sub(/^[ \t]+/, "", line)
	gsub(/[ \t]+/, " ", line)
	reason = reason (reason == "" ? "" : " ") line
}
/^ *--- FAIL/ {
	for (i = 0; i < kept; i++) print "    " reasons[i]
	kept = 0
}
{ print; fflush() }
