// Package script drives the whole agent with text files. A scenario is a list
// of commands, each on a line of its own: it applies manifests, lets containers
// exit, makes the runtime or the API server fail, kills the agent, and shows
// what was asked of the runtime and what was sent to the API server. What a
// command shows is compared with the block below it:
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
// format. `go test ./test/script -update` writes the blocks anew; read the
// difference before you believe it. The verbs are in verbs.go.
//
// The agent is the one of internal/app, with every part of it; the runtime is
// fakecri and the API server fakeapi, both in memory. All of it lives in a
// testing/synctest bubble: time stands still while anything is done and jumps
// when all wait, so a back-off of five minutes costs nothing, and `wait` has no
// luck in it. Each runtime call takes a millisecond of that time: calls made at
// the same moment were made concurrently and are shown in a fixed order, all
// others in the order in which they happened.
//
// Some things hold in every scenario without being asked for: no pod ever has two
// running instances of a container, and no static pod two running copies; the
// agent cancels no call that makes, changes or removes something; the
// instances of a container are numbered one after the other; and what is not to run
// again never does.
//
// Crashes runs a scenario again and again and kills the agent after another
// runtime call each time. AnswersThatGetLost lets the agent live and has it never
// hear what became of another call each time.
//
// Histories are scenarios that are generated at random (history.go). It is not known what they
// would show; what no history may hold is in judge.go. `make histories` lives through as
// many as one has time for. What breaks a rule is printed, made as short as it can be,
// and can be lived again: `go test ./test/script -run Histories -replay FILE -log`.
//
// The harness is exported for tests in Go, those of test/config: Settled gives them a node
// in virtual time (settled.go), Listening one whose server listens on this machine, in real
// time (served.go). World is that node, Run carries out the verbs of scenarios on it.
package script
