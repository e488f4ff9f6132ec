package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TopicConfig describes a topic as it should be.
type TopicConfig struct {
	Name       string
	Partitions int32
	// ReplicationFactor -1 means the brokers' default.
	ReplicationFactor int16
	// Configs are topic settings such as "retention.ms".
	Configs map[string]string
}

// TopicOutcome is what EnsureTopics found or did.
type TopicOutcome string

const (
	// TopicCreated did not exist and does now.
	TopicCreated TopicOutcome = "created"
	// TopicExists as described.
	TopicExists TopicOutcome = "exists"
	// TopicDiffers exists otherwise than described and was left alone.
	TopicDiffers TopicOutcome = "differs"
	// TopicFailed could not be created or described.
	TopicFailed TopicOutcome = "failed"
)

// TopicReport is the outcome for one topic.
type TopicReport struct {
	Name    string
	Outcome TopicOutcome
	// Differences say what differs, as "partitions: 6, not 12".
	Differences []string
	// Err is set when Outcome is TopicFailed.
	Err error
}

// Topic is what a broker says about a topic.
type Topic struct {
	Name              string
	ID                [16]byte
	Partitions        int
	ReplicationFactor int
}

// PartitionLag is how far a group is behind in one partition.
type PartitionLag struct {
	Topic     string
	Partition int32
	// Committed is the group's offset, or -1 if it has none.
	Committed int64
	// End is the offset behind the last record.
	End int64
	// Lag is -1 if it cannot be told, for the reason in Err.
	Lag int64
	// Member is the client id that holds the partition, or empty.
	Member string
	Err    error
}

// Admin asks and changes what concerns the whole cluster.
type Admin struct {
	cfg    Config
	client *kgo.Client
	admin  *kadm.Client
}

// NewAdmin makes an Admin. It does not connect.
func NewAdmin(cfg Config) (*Admin, error) {
	// What an Admin has just been told of a topic may no longer hold after it
	// has created that topic, so it hardly caches.
	client, err := cfg.newClient(kgo.MetadataMinAge(10 * time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &Admin{cfg: cfg, client: client, admin: kadm.NewClient(client)}, nil
}

// Close releases the connections.
func (a *Admin) Close() { a.client.Close() }

// Ping checks that a broker can be reached and accepts the credentials. The
// error names the addresses and the cause.
func (a *Admin) Ping(ctx context.Context) error {
	err := a.client.Ping(ctx)
	hint := ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		// What a broker does that expects TLS, or dislikes the credentials.
		hint = "the broker hangs up, do kafka.tls and kafka.sasl fit it? "
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		hint = "check kafka.sasl: "
	}
	return fmt.Errorf("reach kafka at %s: %s%w", strings.Join(a.cfg.Brokers, ", "), hint, err)
}

// Version returns what the brokers are, as "v4.2" or "at least v3.9", or one
// line per version where they differ.
func (a *Admin) Version(ctx context.Context) (string, error) {
	versions, err := a.admin.ApiVersions(ctx)
	if err != nil {
		return "", fmt.Errorf("ask brokers for their version: %w", err)
	}
	seen := map[string]bool{}
	for _, v := range versions {
		if v.Err != nil {
			return "", fmt.Errorf("ask broker %d for its version: %w", v.NodeID, v.Err)
		}
		seen[v.VersionGuess()] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), "\n"), nil
}

// ClusterID returns the name that the cluster gives itself.
func (a *Admin) ClusterID(ctx context.Context) (string, error) {
	meta, err := a.admin.BrokerMetadata(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for the cluster's id: %w", err)
	}
	return meta.Cluster, nil
}

// EnsureTopics creates the topics that do not exist and compares those that do.
// It changes no existing topic. It may be called by any number of processes at
// once. The error joins those of topics that failed. However many topics there are,
// it takes about as long as for one.
func (a *Admin) EnsureTopics(ctx context.Context, wanted []TopicConfig) ([]TopicReport, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	existing, err := a.details(ctx, wanted)
	if err != nil {
		return nil, fmt.Errorf("ensure topics: %w", err)
	}
	reports := make([]TopicReport, len(wanted))
	var creations sync.WaitGroup
	for i, w := range wanted {
		reports[i].Name = w.Name
		if detail, ok := existing[w.Name]; !ok || errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
			creations.Go(func() { reports[i] = a.ensureNew(ctx, w) })
		}
	}
	creations.Wait()
	if slices.ContainsFunc(reports, TopicReport.open) {
		a.compareOpen(ctx, wanted, reports, existing)
	}
	var faults []error
	for _, r := range reports {
		faults = append(faults, r.Err)
	}
	return reports, errors.Join(faults...)
}

// open reports whether the topic exists and has not been compared yet.
func (r TopicReport) open() bool { return r.Outcome == "" }

func (r TopicReport) failed(verb string, err error) TopicReport {
	r.Outcome, r.Err = TopicFailed, fmt.Errorf("%s topic %s: %w", verb, r.Name, err)
	return r
}

// details asks for what there is of the wanted topics.
func (a *Admin) details(ctx context.Context, wanted []TopicConfig) (kadm.TopicDetails, error) {
	names := make([]string, len(wanted))
	for i, w := range wanted {
		names[i] = w.Name
	}
	return a.admin.ListTopics(ctx, names...)
}

// ensureNew creates a topic. The report is open when somebody else was faster.
func (a *Admin) ensureNew(ctx context.Context, want TopicConfig) TopicReport {
	report := TopicReport{Name: want.Name}
	err := a.create(ctx, want)
	exists := errors.Is(err, kerr.TopicAlreadyExists)
	if err != nil && !exists {
		return report.failed("create", err)
	}
	if err := a.awaitLeaders(ctx, want.Name); err != nil {
		return report.failed("create", err)
	}
	if !exists {
		report.Outcome = TopicCreated
	}
	return report
}

// compareOpen compares the topics whose reports are open.
func (a *Admin) compareOpen(ctx context.Context, wanted []TopicConfig, reports []TopicReport, existing kadm.TopicDetails) {
	described, err := a.topicConfigs(ctx, wanted, reports)
	if err == nil && slices.ContainsFunc(reports, func(r TopicReport) bool { return r.open() && len(existing[r.Name].Partitions) == 0 }) {
		existing, err = a.details(ctx, wanted) // some have been made meanwhile
	}
	for i, want := range wanted {
		if !reports[i].open() {
			continue
		}
		fault := cmp.Or(err, existing[want.Name].Err)
		configs, known := described[want.Name]
		if fault == nil && !known && len(want.Configs) > 0 {
			fault = errors.New("the broker does not tell its settings")
		}
		if fault != nil {
			reports[i] = reports[i].failed("describe", fault)
			continue
		}
		reports[i].Outcome, reports[i].Differences = TopicExists, want.differences(existing[want.Name], configs)
		if len(reports[i].Differences) > 0 {
			reports[i].Outcome = TopicDiffers
		}
	}
}

// topicConfigs returns the settings of the topics that are to be compared. A topic that
// the broker refuses to describe has none, and its report says why.
func (a *Admin) topicConfigs(ctx context.Context, wanted []TopicConfig, reports []TopicReport) (map[string]map[string]string, error) {
	var names []string
	at := make(map[string]int)
	for i, want := range wanted {
		if reports[i].open() && len(want.Configs) > 0 {
			names = append(names, want.Name)
			at[want.Name] = i
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	answers, err := a.admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, err
	}
	described := make(map[string]map[string]string, len(names))
	for _, answer := range answers {
		i, asked := at[answer.Name]
		if !asked {
			continue
		}
		if answer.Err != nil {
			reports[i] = reports[i].failed("describe", answer.Err)
			continue
		}
		described[answer.Name] = make(map[string]string, len(answer.Configs))
		for _, c := range answer.Configs {
			described[answer.Name][c.Key] = c.MaybeValue()
		}
	}
	return described, nil
}

func (a *Admin) create(ctx context.Context, want TopicConfig) error {
	configs := make(map[string]*string, len(want.Configs))
	for name, value := range want.Configs {
		configs[name] = &value
	}
	resp, err := a.admin.CreateTopic(ctx, want.Partitions, cmp.Or(want.ReplicationFactor, -1), configs, want.Name)
	if err != nil && resp.ErrMessage != "" {
		return fmt.Errorf("%w (%s)", err, resp.ErrMessage)
	}
	return err
}

// awaitLeaders waits until a new topic can be used: a broker answers a creation
// before all brokers know of it.
func (a *Admin) awaitLeaders(ctx context.Context, name string) error {
	for {
		details, err := a.admin.ListTopics(ctx, name)
		if err != nil {
			return err
		}
		detail, led := details[name], 0
		for _, p := range detail.Partitions {
			if p.Err == nil && p.Leader >= 0 {
				led++
			}
		}
		if detail.Err == nil && led > 0 && led == len(detail.Partitions) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for leaders: %w", ctx.Err())
		}
	}
}

// differences says in what a topic is not as it should be.
func (c TopicConfig) differences(detail kadm.TopicDetail, configs map[string]string) []string {
	var differences []string
	differ := func(what, is, should string) {
		if is != should {
			differences = append(differences, fmt.Sprintf("%s: %s, not %s", what, is, should))
		}
	}
	if c.Partitions > 0 {
		differ("partitions", fmt.Sprint(len(detail.Partitions)), fmt.Sprint(c.Partitions))
	}
	if c.ReplicationFactor > 0 {
		differ("replication factor", fmt.Sprint(detail.Partitions.NumReplicas()), fmt.Sprint(c.ReplicationFactor))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Configs)) {
		differ(name, cmp.Or(configs[name], "unset"), c.Configs[name])
	}
	return differences
}

// ListTopics returns the topics of those names, or all but internal ones.
func (a *Admin) ListTopics(ctx context.Context, names ...string) ([]Topic, error) {
	details, err := a.admin.ListTopics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	list := make([]Topic, 0, len(details))
	for _, d := range details.Sorted() {
		if d.Err != nil {
			return nil, fmt.Errorf("list topic %s: %w", d.Topic, d.Err)
		}
		list = append(list, Topic{Name: d.Topic, ID: d.ID, Partitions: len(d.Partitions), ReplicationFactor: d.Partitions.NumReplicas()})
	}
	return list, nil
}

// Retention returns how long topics keep their records by time, by name; negative:
// for ever. It leaves out topics that the broker does not tell about.
func (a *Admin) Retention(ctx context.Context, names ...string) (map[string]time.Duration, error) {
	values, err := a.setting(ctx, "retention.ms", names)
	keeps := make(map[string]time.Duration, len(values))
	for name, value := range values {
		if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
			keeps[name] = milliseconds(ms)
		}
	}
	return keeps, err
}

// Values of TopicTimestampType.
const (
	// TopicTimestampType is the setting of a topic that says whose time its records carry.
	TopicTimestampType = "message.timestamp.type"
	// LogAppendTime is the broker's, when it took them.
	LogAppendTime = "LogAppendTime"
)

// TimestampTypes returns whose time the records of topics carry, by name:
// LogAppendTime or CreateTime. It leaves out topics that the broker does not tell about.
func (a *Admin) TimestampTypes(ctx context.Context, names ...string) (map[string]string, error) {
	return a.setting(ctx, TopicTimestampType, names)
}

// setting returns a setting of topics, by name of the topic.
func (a *Admin) setting(ctx context.Context, key string, names []string) (map[string]string, error) {
	described, err := a.admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	values := make(map[string]string, len(described))
	for _, topic := range described {
		for _, c := range topic.Configs {
			if c.Key == key {
				values[topic.Name] = c.MaybeValue()
			}
		}
	}
	return values, nil
}

// milliseconds is a duration of so many, or the longest there is.
func milliseconds(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// EndOffsets returns, per partition, the offset behind the last record.
func (a *Admin) EndOffsets(ctx context.Context, names ...string) (Offsets, error) {
	return listed(a.admin.ListEndOffsets(ctx, names...))
}

// StartOffsets returns, per partition, the offset of the first record.
func (a *Admin) StartOffsets(ctx context.Context, names ...string) (Offsets, error) {
	return listed(a.admin.ListStartOffsets(ctx, names...))
}
