package checkpoint

import v1 "k8s.io/api/core/v1"

// events records events about the node.
type events interface {
	Node(eventType, reason, message string)
}

// Reporter sends events about state files that were put aside because they cannot be used. Reports from before the
// recorder is connected are kept, and sent when it is. Until then only one goroutine may use the Reporter.
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

// Connect sets the recorder and sends the kept reports.
func (r *Reporter) Connect(e events) {
	r.events = e
	for _, err := range r.errs {
		r.Report(err)
	}
	r.errs = nil
}
