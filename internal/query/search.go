package query

// The documents of full text search. data_index_words (a migration) makes them from
// texts and JSON documents. An index on one of these expressions (see Indexes) answers
// searches; without it every row is read.
const (
	searchWorkflows = `data_index_words(coalesce(name, '') || ' ' || coalesce(namespace, '') || ' ' || coalesce(error_type, '') || ' ' || ` +
		`coalesce(error_title, '') || ' ' || coalesce(error_detail, '') || ' ' || coalesce(error_instance, ''), input, output)`
	searchTasks = `data_index_words(coalesce(task_name, '') || ' ' || coalesce(task_position, '') || ' ' || coalesce(error_type, '') || ' ' || ` +
		`coalesce(error_title, '') || ' ' || coalesce(error_detail, '') || ' ' || coalesce(error_instance, ''), input, output)`
	searchExecutions = `data_index_words(coalesce(name, '') || ' ' || coalesce(reason, '') || ' ' || coalesce(signal, '') || ' ' || ` +
		`coalesce(message, ''), labels, NULL)`
)
