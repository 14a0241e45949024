// Package script drives the whole agent with text files. A scenario is a list
// of commands, each on a line of its own: it applies manifests, lets containers
// exit, makes the runtime or the API server fail, kills the agent, and shows the
// calls to the runtime and the requests to the API server. The output of a
// command is compared with the block below it:
//
//	apply web.yaml
//	wait web Ready
//	calls
//	----
//	RunPodSandbox web
//	PullImage web app:1
//	CreateContainer web/main#0
//	StartContainer web/main#0
//
// A block ends with an empty line. The manifests follow the commands, in txtar
// format. `go test ./test/script -update` writes the blocks again; review the
// difference. The verbs are in verbs.go.
//
// The agent is the one of internal/app, with every part of it; the runtime is
// fakecri and the API server fakeapi, both in memory. All of it runs in a
// testing/synctest bubble: time stands still while a goroutine runs and jumps
// when all wait, so a back-off of five minutes takes no real time, and `wait` is
// deterministic. Each runtime call takes a millisecond of virtual time: calls
// that begin at the same moment are concurrent and are shown in a fixed order,
// all others in the order in which they happened.
//
// Some invariants are checked in every scenario: no pod ever has two running instances
// of a container, and no static pod two running copies; the agent cancels no call that
// makes, changes or removes something; the attempts of a container are numbered one after
// the other; and a container that must not run again is never started again.
//
// TestCrashes runs a scenario many times and kills the agent after a different runtime
// call each time. TestAnswersThatGetLost does not kill the agent; in each run the answer
// of a different call is lost.
//
// Histories are scenarios that are generated at random (history.go). They have no expected
// output; the invariants that they must not break are in judge.go. `make histories` runs
// as many as requested. A history that breaks an invariant is shortened and printed, and
// can be run again: `go test ./test/script -run Histories -replay FILE -log`.
//
// The harness is exported for tests in Go, those of test/config: Settled gives them a node
// in virtual time (settled.go), Listening a node whose server listens on this machine, in real
// time (served.go). World is that node, Run executes the verbs of scenarios on it.
package script
