package execution

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/topics"
)

// count writes a number with its noun.
func count(n int, one, many string) string { return fmt.Sprintf("%d %s", n, plural(n, one, many)) }

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// span writes a duration in its two largest units.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	units := []struct {
		of   time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.of, u.name)
		if i+1 < len(units) {
			if rest := d % u.of / units[i+1].of; rest > 0 {
				text += fmt.Sprintf("%d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "less than a second"
}

// number writes a count that goes no further than AheadMax.
func number(n int) string {
	if n >= AheadMax {
		return fmt.Sprintf("%d or more", AheadMax)
	}
	return fmt.Sprint(n)
}

// many writes a count that goes no further than AheadMax with its verb.
func many(n int, one, more string) string { return number(n) + " " + plural(n, one, more) }

// amount is how much there is of a resource.
type amount struct {
	n int64
	// noun is its name in the plural, and setting that of a worker.
	noun, setting string
	// countable is true of what every worker counts: where it has none there is none.
	countable bool
	total     int64
	write     func(int64) string
}

// amountsOf returns the amounts of a request, in the order in which they are spoken
// of.
func amountsOf(r topics.Requirements) [4]amount {
	things := func(one, more string) func(int64) string {
		return func(n int64) string { return count(int(n), one, more) }
	}
	return [4]amount{
		{n: int64(r.Slots), noun: "slots", setting: "slots", countable: true, write: things("slot", "slots")},
		{n: int64(r.GPUs), noun: "GPUs", setting: "gpus", countable: true, write: things("GPU", "GPUs")},
		{n: r.MemoryBytes, noun: "memory", setting: "memory", write: func(n int64) string { return size(n) + " of memory" }},
		{n: r.CPUMillis, noun: "CPUs", setting: "cpu", write: func(n int64) string {
			if n == 1000 {
				return "1 CPU"
			}
			return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) + " CPUs"
		}},
	}
}

// String writes the amount with its noun.
func (a amount) String() string { return a.write(a.n) }

// figure writes the amount without its noun.
func (a amount) figure() string {
	switch text := a.write(a.n); a.noun {
	case "memory":
		return strings.TrimSuffix(text, " of memory")
	default:
		figure, _, _ := strings.Cut(text, " ")
		return figure
	}
}

// of writes another amount of the same resource.
func (a amount) of(n int64) string {
	a.n = n
	return a.String()
}

// whole writes the amount as all that there is.
func (a amount) whole() string {
	_, noun, _ := strings.Cut(a.String(), " ")
	switch {
	case a.noun != "memory" && a.n == 1:
		return "the only " + noun
	case a.noun != "memory" && a.n == 2:
		return "both " + noun
	default:
		return "all " + a.String()
	}
}

// are writes how much of the resource is, in front of what it is.
func (a amount) are(n int64) string {
	a.n = n
	if a.n == 1 || a.noun == "memory" {
		return a.figure() + " is"
	}
	return a.figure() + " are"
}

// everything lists what is needed.
func everything(all [4]amount) string {
	var parts []string
	for _, a := range all {
		if a.n > 0 {
			parts = append(parts, a.String())
		}
	}
	return list(parts)
}

// list writes several things as one would say them.
func list(parts []string) string {
	if last := len(parts) - 1; last > 0 {
		return strings.Join(parts[:last], ", ") + " and " + parts[last]
	}
	return strings.Join(parts, "")
}

// size writes a number of bytes in the largest unit that fits it.
func size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if n < 1024 {
		return count(int(n), "byte", "bytes")
	}
	value, unit := float64(n)/1024, units[0]
	for _, u := range units[1:] {
		if value < 1024 {
			break
		}
		value, unit = value/1024, u
	}
	return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64) + " " + unit
}
