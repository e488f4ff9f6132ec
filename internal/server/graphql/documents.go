package graphql

import (
	"sync"

	"github.com/vektah/gqlparser/v2/ast"
)

const (
	documentsMost = 256
	// documentBytes: longer documents are not remembered.
	documentBytes = 16 << 10
)

// documents remembers what has been parsed and found valid, since programs ask the
// same queries with other variables. When it is full it begins anew.
type documents struct {
	mu   sync.RWMutex
	byID map[string]*ast.QueryDocument
}

func newDocuments() *documents { return &documents{byID: map[string]*ast.QueryDocument{}} }

func (d *documents) get(text string) *ast.QueryDocument {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.byID[text]
}

func (d *documents) put(text string, doc *ast.QueryDocument) {
	if len(text) > documentBytes {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byID) >= documentsMost {
		clear(d.byID)
	}
	d.byID[text] = doc
}
