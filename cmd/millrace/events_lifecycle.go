package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/lifecycle"
	"github.com/millrace/millrace/topics"
)

// lifecycleOf returns what an event tells of a workflow, whichever engine wrote it.
func lifecycleOf(e client.Event) (told lifecycle.Event, ok bool) {
	if !topics.IsLifecycle(e.Type) {
		return lifecycle.Event{}, false
	}
	told, skip, err := lifecycle.Read(topics.Envelope{
		ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject, Time: e.Time, Data: e.Data,
		DataContentType: topics.ContentTypeJSON,
	})
	return told, err == nil && skip == ""
}

// eventSubject is what an event is about.
func eventSubject(e client.Event) string {
	if told, ok := lifecycleOf(e); ok {
		return told.InstanceID
	}
	return cmp.Or(e.Subject, "-")
}

// lifecycleDetail says what an event of a workflow adds to its type.
func lifecycleDetail(told lifecycle.Event) string {
	var parts []string
	add := func(format, text string) {
		if text != "" {
			parts = append(parts, fmt.Sprintf(format, text))
		}
	}
	if told.Kind == lifecycle.Task {
		add("%s", told.TaskPosition)
		if told.TaskName != "" && !strings.HasSuffix(told.TaskPosition, "/"+told.TaskName) {
			add("%s", told.TaskName)
		}
		if told.Iteration > 0 {
			parts = append(parts, fmt.Sprintf("turn %d", told.Iteration))
		}
		if told.Attempt > 0 {
			parts = append(parts, fmt.Sprintf("attempt %d", told.Attempt))
		}
	}
	add("%s", strings.Trim(told.Namespace+"/"+told.Name, "/"))
	add("version %s", told.Version)
	add("%s", told.Status)
	if told.Error != nil {
		add("%s", cmp.Or(told.Error.Detail, told.Error.Title, told.Error.Type))
	}
	return strings.Join(parts, ", ")
}
