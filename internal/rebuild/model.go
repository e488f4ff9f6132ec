package rebuild

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// Model is a projection as a rebuild sees it.
type Model struct {
	// Name is that of the projection and of its consumer, Group the consumer's group.
	Name, Group string
	// Topic is what it reads, by its name at the broker.
	Topic string
	// Version identifies the declaration.
	Version string
	// Tables are those that it builds, parents first.
	Tables []Table
	// NewBatch returns an empty batch.
	NewBatch func() Batch
}

// Table is one table of a projection.
type Table struct {
	Name string
	// Key are the columns of its key.
	Key []string
	// MergeSQL returns the statement that merges the rows of one table of this make that
	// fulfil a condition on the alias source into another.
	MergeSQL func(from, into, condition string) string
}

// Batch folds records into rows.
type Batch interface {
	// Add folds in a record. After an error, which is the record's fault, the batch is
	// as it was.
	Add(r topics.Record) error
	// Merge writes the rows to the tables that into names for those of the model.
	Merge(ctx context.Context, tx pgx.Tx, into map[string]string) error
}

// ModelOf returns the projection as a rebuild sees it.
func ModelOf(p projections.Projection, naming topics.Naming) Model {
	m := Model{
		Name: p.Name, Group: pipeline.GroupPrefixDefault + p.Name, Topic: naming.Physical(p.Topic), Version: p.Version(),
		NewBatch: func() Batch { return batch{p.NewBatch(), p.Tables} },
	}
	for _, t := range p.Tables {
		table := Table{Name: t.Name(), MergeSQL: t.MergeTableSQL}
		for _, c := range t.KeyColumns() {
			table.Key = append(table.Key, c.Name())
		}
		m.Tables = append(m.Tables, table)
	}
	return m
}

// batch is a batch of a projection.
type batch struct {
	*projections.Batch
	tables []*projections.Table
}

// Merge implements Batch.
func (b batch) Merge(ctx context.Context, tx pgx.Tx, into map[string]string) error {
	names := make(map[*projections.Table]string, len(b.tables))
	for _, t := range b.tables {
		names[t] = into[t.Name()]
	}
	return b.Batch.Merge(ctx, tx, names)
}
