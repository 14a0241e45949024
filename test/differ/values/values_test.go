package values

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"keelson/test/kit/scrape"
)

const exposition = `# TYPE memory gauge
memory{pod="a",image=""} %v
# TYPE limit gauge
limit{pod="a"} %v
# TYPE cpu counter
cpu{pod="a"} %v
# TYPE calls histogram
calls_bucket{le="+Inf"} %v
calls_sum 1
calls_count %v
`

func shot(t *testing.T, memory, limit, cpu, calls any) Shot {
	t.Helper()
	return OfMetrics(scrape.Families(t, fmt.Sprintf(exposition, memory, limit, cpu, calls, calls)))
}

func TestCompare(t *testing.T) {
	before, after := shot(t, 100, 64, 10, 3), shot(t, 110, 64, 12, 5)
	for _, tc := range []struct {
		name string
		here Shot
		want []string
	}{
		{"all between", shot(t, 105, 64, 11, 4), nil},
		{"a gauge a little outside", shot(t, 135, 64, 11, 4), nil},
		{"a gauge far outside", shot(t, 200, 64, 11, 4), []string{`/m memory{image="",pod="a"}: 200 here, upstream 100 and then 110`}},
		{
			"what does not change is other",
			shot(t, 105, 65, 11, 4),
			[]string{`/m limit{pod="a"}: 65 here, upstream 64 and then 64`},
		},
		{
			"a counter that is behind",
			shot(t, 105, 64, 9.5, 4),
			[]string{`/m cpu{pod="a"}: 9.5 here, upstream 10 and then 12`},
		},
		{"a counter that is ahead", shot(t, 105, 64, 13, 4), []string{`/m cpu{pod="a"}: 13 here, upstream 10 and then 12`}},
		{"a histogram that counted too much", shot(t, 105, 64, 11, 6), []string{`/m calls: 6 here, upstream 3 and then 5`}},
	} {
		var got []string
		for _, f := range Compare("/m", OfNode, before, tc.here, after) {
			got = append(got, f.String())
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	here := shot(t, 105, 64, 11, 4)
	delete(here, "calls")
	here[`memory{image="pause",pod="a"}`] = here[`memory{image="",pod="a"}`]
	delete(here, `memory{image="",pod="a"}`)
	delete(after, `limit{pod="a"}`) // the reference does not always show it
	delete(here, `limit{pod="a"}`)
	var got []string
	for _, f := range Compare("/m", OfNode, before, here, after) {
		got = append(got, f.String())
	}
	want := []string{"/m calls: only upstream", `/m memory{image="",pod="a"}: only upstream`,
		`/m memory{image="pause",pod="a"}: only here`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("series: %q, want %q", got, want)
	}
	// Counters of an agent itself begin at zero with each agent.
	for calls, differs := range map[int]bool{0: true, 1: false, 900: false} {
		found := Compare("/m", OfAgent, before, shot(t, 105, 64, 1, calls), shot(t, 110, 64, 2, 5))
		if (len(found) == 1) != differs {
			t.Errorf("%d calls: %v", calls, found)
		}
	}
}

// TestCompareMachine: other programs use the machine as well.
func TestCompareMachine(t *testing.T) {
	for _, series := range []string{`memory{id="/"}`, "node_memory", "node.memory.usageBytes"} {
		at := func(n float64) Shot { return Shot{series: {Number: n}} }
		for here, want := range map[float64]int{280: 0, 400: 1} {
			if found := Compare("/m", OfNode, at(100), at(here), at(110)); len(found) != want {
				t.Errorf("%s %v: %v", series, here, found)
			}
		}
	}
}

// TestCompareInUse: the memory in use and the open files of the machine may have equal values in both turns at random.
func TestCompareInUse(t *testing.T) {
	at := func(series string, n float64) Shot { return Shot{series: {Number: n}} }
	for _, c := range []struct {
		series string
		here   float64
		want   int
	}{
		{`container_sockets{container="",id="/"}`, 240, 0},
		{`container_sockets{container="",id="/kubepods"}`, 240, 1},
		{`container_processes{container="",id="/"}`, 900, 1},
		{`node.rlimit.curproc`, 250, 0},
		{`container_memory_working_set_bytes{container="side"}`, 250, 0},
		{`container_memory_working_set_bytes{container="side"}`, 400, 1},
		{`container_memory_max_usage_bytes{container="side"}`, 250, 1},
		{`pods.containers.memory.usageBytes{pods="a/b"}`, 250, 0},
		{`node.rlimit.maxpid`, 250, 1},
	} {
		if found := Compare("/m", OfNode, at(c.series, 243), at(c.series, c.here),
			at(c.series, 243)); len(found) != c.want {
			t.Errorf("%s: %v", c.series, found)
		}
	}
}

func TestSteady(t *testing.T) {
	turn := func(series ...string) map[string]Shot {
		shot := Shot{}
		for _, s := range series {
			shot[s] = Value{Number: 1}
		}
		return map[string]Shot{"/m": shot}
	}
	always := []string{`fs{device="/dev/a"}`, `io{device=""}`, `net{interface="eth0",pod="a"}`, `fs{device="unknown"}`,
		"cpu"}
	first := turn(append([]string{`fs{device="/mnt"}`}, always...)...)
	second := turn(append([]string{`net{interface="eth1"}`, `node.network.rxBytes{interfaces="eth1"}`}, always...)...)
	Steady([]map[string]Shot{first, second}, []map[string]bool{
		{"/dev/a": true, "eth0": true, "/mnt": true}, {"/dev/a": true, "eth0": true, "eth1": true},
	})
	if want := turn(always...); !reflect.DeepEqual(first, want) || !reflect.DeepEqual(second, want) {
		t.Errorf("%v and %v, want %v", first, second, want)
	}
}

func TestSummary(t *testing.T) {
	got, err := OfSummary(`{"node":{"nodeName":"n","cpu":{"time":"2026-01-01T00:00:10Z","usageCoreNanoSeconds":5}},
		"pods":[{"podRef":{"name":"a","namespace":"ns","uid":"1"},"startTime":"2026-01-01T00:00:00Z",
		"containers":[{"name":"main","memory":{"rssBytes":7}}],"volume":[{"name":"v","usedBytes":3}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := Shot{
		"node.nodeName":                                                  {Text: "n"},
		"node.cpu.time":                                                  {Number: 1767225610, Grows: true},
		"node.cpu.usageCoreNanoSeconds":                                  {Number: 5, Grows: true},
		`pods.podRef.name{pods="ns/a"}`:                                  {Text: "a"},
		`pods.podRef.namespace{pods="ns/a"}`:                             {Text: "ns"},
		`pods.podRef.uid{pods="ns/a"}`:                                   {Text: "1"},
		`pods.startTime{pods="ns/a"}`:                                    {Text: "2026-01-01T00:00:00Z"},
		`pods.containers.name{pods="ns/a",containers="main"}`:            {Text: "main"},
		`pods.containers.memory.rssBytes{pods="ns/a",containers="main"}`: {Number: 7},
		`pods.volume.name{pods="ns/a",volume="v"}`:                       {Text: "v"},
		`pods.volume.usedBytes{pods="ns/a",volume="v"}`:                  {Number: 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if n := Common(got, got, got); n != len(got) || Common(got, got, nil) != 0 {
		t.Errorf("%d of %d values are there always", n, len(got))
	}
	if len(Compare("/s", OfNode, got, got, got)) != 0 {
		t.Error("it differs from itself")
	}
	if _, err := OfSummary("no"); err == nil {
		t.Error("nonsense is read")
	}
}

func TestRules(t *testing.T) {
	const table = "| endpoint | series | labels | how | why |\n|---|---|---|---|---|\n| `/m` | `mem*` | `pod=\"a\"` | value | because |\n" +
		"| `/m` | `cpu` |  | only here | too |\n| `/m` | `disk` |  | value, at times | so |\n| `/metrics` | `old` | only upstream | another table's |\n"
	rules, err := ReadRules(table)
	if err != nil || len(rules) != 3 {
		t.Fatalf("%d rules, %v", len(rules), err)
	}
	about := func(series, how string) Finding { return Finding{Endpoint: "/m", Series: series, How: how} }
	findings := []Finding{
		about(`memory{image="",pod="a"}`, Unequal), about(`memory{image="",pod="b"}`, Unequal),
		about(`memory{image="",pod="a"}`, Missing), about("cpus", Extra),
	}
	open, idle := Judge(findings, rules)
	want := []string{`1 /m mem* pod="a", value: because`}
	if got := ByRule(findings, rules); !reflect.DeepEqual(got, want) {
		t.Errorf("ruled %q, want %q", got, want)
	}
	if !reflect.DeepEqual(open, findings[1:]) || len(idle) != 1 || idle[0].Name != "cpu" {
		t.Errorf("unexplained %v, idle %v", open, idle)
	}
	for _, bad := range []string{strings.Replace(table, "because", " ", 1), strings.Replace(table, "value", "odd", 1),
		"no table"} {
		if _, err := ReadRules(bad); err == nil {
			t.Errorf("accepted: %s", bad)
		}
	}
}
