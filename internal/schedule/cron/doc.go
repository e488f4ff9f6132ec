// Package cron reads cron expressions and tells the times that they mean. It is pure, and
// the only package that knows a library for it.
//
// # Expressions
//
// Five fields are minute, hour, day of the month, month and day of the week; six begin with
// seconds. Fields hold *, numbers, names (mon, jan), ranges (1-5, also 22-2 and fri-mon), steps
// (*/15) and lists (1,15). Where both days are restricted, either is enough, as in every
// crontab. Further: L, the last day of the month; L-3, three days before it; 15W, the weekday
// nearest to the 15th; LW, the last weekday; fri#2, the second Friday; friL, the last one.
// @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually stand for what they
// say. "@every 90m" are the multiples of that since 1970, whatever process reckons them.
//
// # Clocks that are set
//
// An expression means times on the wall clock of its zone.
//
//   - A time that the clock skips, as it is put forward, is made up for at the moment at which
//     it is put forward. Several of them are one.
//   - A time that the clock shows twice, as it is put back, counts the first time.
//   - An expression that names every hour (*, */1, 0-23) goes by the time that passes: neither
//     does anything for it, an hour that comes twice counts twice.
package cron
