package checkpoint

import v1 "k8s.io/api/core/v1"

// events records what happens to the node.
type events interface {
	Node(eventType, reason, message string)
}

// Reporter sends events about state files that were put aside because they cannot be used. What is reported before
// there is a recorder is sent when it is connected. It is for one goroutine until then.
type Reporter struct {
	events events
	errs   []error // before there is a recorder
}

// Report reports one file.
func (r *Reporter) Report(err error) {
	if r.events == nil {
		r.errs = append(r.errs, err)
		return
	}
	r.events.Node(v1.EventTypeWarning, EventUnusable, err.Error())
}

// Connect names the recorder.
func (r *Reporter) Connect(e events) {
	r.events = e
	for _, err := range r.errs {
		r.Report(err)
	}
	r.errs = nil
}
