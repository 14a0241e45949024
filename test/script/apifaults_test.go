package script

import (
	"strings"
	"testing"
)

// apiFaults are failures of an API server, each with the steps that begin and end it.
var apiFaults = []struct{ name, begin, end string }{
	{"conflicts", "api-fault odd patch any code=409\napi-fault odd2 update any code=409", "release odd\nrelease odd2"},
	{"too many requests", "api-fault odd any any code=429 retry=20", "release odd"},
	{"too many requests, with no word of when to come again", "api-fault odd any any code=429", "release odd"},
	{"internal errors", "api-fault odd any any code=500", "release odd"},
	{"unavailable", "api-fault odd any any code=503", "release odd"},
	{"forbidden", "api-fault odd any any code=403", "release odd"},
	{"unauthorized", "api-fault odd any any code=401", "release odd"},
	{"slow", "api-fault odd any any delay=8", "release odd"},
	{"slower than any timeout", "api-fault odd any any delay=90", "release odd"},
	{"answers that get lost", "api-fault odd any any drop after", "release odd"},
	{"connections that break", "api-fault odd any any drop", "release odd"},
	{"gone", "api down", "api up"},
	{"partitioned", "api hang", "api up"},
	{"gone and then partitioned", "api down\nadvance 60\napi hang", "api up"},
}

// No failure of an API server affects running pods. Containers that exit are
// restarted by their policy. Once the failure has ended the lease is renewed
// within 15 s, and everything else is brought up to date without help.
func TestAnAPIServerThatFails(t *testing.T) {
	for _, f := range apiFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			trouble{
				during: strings.NewReplacer("BEGIN", f.begin, "END", f.end).Replace(apiStory),
				after:  "apply begins.yaml=calm.yaml\nwait begins Ready within=30\n",
				gone:   "30", rest: "70",
			}.play(t, f.name)
		})
	}
}

// apiStory: calm is not changed, the container of ends exits and is restarted, leaves is
// deleted just before the failure begins.
const apiStory = `wait lease renewed
calls
BEGIN
delete leaves
exit ends main 3
advance 10m
calls calm
----

calls still-node1
----

calls ends
----
CreateContainer ends/main#1
StartContainer ends/main#1

END
wait lease renewed within=15
wait node Ready within=15
wait ends main#1 Ready within=30
wait leaves gone within=60
`
