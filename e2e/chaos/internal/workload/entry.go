package workload

import (
	"github.com/millrace/millrace/topics"
)

// The topics of the workload.
const (
	// Ledger is what the three kinds of consumers read.
	Ledger topics.Topic = "chaos_ledger"
	// Echo is what the OnTx consumer publishes for each entry it applies.
	Echo topics.Topic = "chaos_echo"
	// Blocked is read by a consumer that stalls rather than files dead letters.
	Blocked topics.Topic = "chaos_blocked"
	// Corpus gets records of all shapes, most of them bad.
	Corpus topics.Topic = "chaos_corpus"
	// Moved is cut short, grown and made anew.
	Moved topics.Topic = "chaos_moved"
)

// Partitions says how many each topic of the workload has.
func Partitions() map[topics.Topic]int32 {
	return map[topics.Topic]int32{Ledger: 6, Echo: 4, Blocked: 4, Corpus: 2, Moved: 4}
}

// The consumers of the workload.
const (
	LedgerTx      = "ledger-tx"
	LedgerBatch   = "ledger-batch"
	LedgerEach    = "ledger-each"
	BlockedLedger = "blocked"
	CorpusLedger  = "corpus"
	MovedLedger   = "moved"
)

// The kinds of facts.
const (
	Plain = "plain"
	// Slow ones take a while and mind their context; Stubborn ones do not mind it.
	Slow     = "slow"
	Stubborn = "stubborn"
	// Poison fails until it is cured; Garbage cannot be decoded.
	Poison  = "poison"
	Garbage = "garbage"
	// Oversize ones are refused by the broker and then skipped by a person; Cut ones
	// were deleted from the topic by one. Neither can have an effect.
	Oversize = "oversize"
	Cut      = "cut"
)

// Entry is the event of a fact.
type Entry struct {
	Key  string `json:"key"`
	Seq  int64  `json:"seq"`
	Kind string `json:"kind"`
	// Millis is how long its handling takes, for the slow kinds.
	Millis int64  `json:"millis,omitempty"`
	Pad    string `json:"pad,omitempty"`
}

// EntryType is the type of Entry.
const EntryType = "chaos.ledger.entry.v1"

// EventType implements topics.Event.
func (Entry) EventType() string { return EntryType }

// EventKey implements topics.Event.
func (e Entry) EventKey() string { return e.Key }

// Echoed says that an entry was applied.
type Echoed struct {
	Key string `json:"key"`
	Seq int64  `json:"seq"`
}

// EventType implements topics.Event.
func (Echoed) EventType() string { return "chaos.echo.applied.v1" }

// EventKey implements topics.Event.
func (e Echoed) EventKey() string { return e.Key }

// GarbageID is the header by which a record is known that has no readable id.
const GarbageID = "chaos-id"
