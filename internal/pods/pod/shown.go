package pod

import "errors"

// Shown is an error with two texts. Events and statuses show Text: upstream's message,
// which users search for, without details of the node that a pod's owner must not see. The
// log shows Err, which names the step and the cause.
type Shown struct {
	Text string
	Err  error
}

// ShowAs is err with another text for events and statuses.
func ShowAs(text string, err error) error { return &Shown{Text: text, Err: err} }

func (s *Shown) Error() string { return s.Err.Error() }
func (s *Shown) Unwrap() error { return s.Err }

// TextOf returns the text of err for events and statuses: that of a Shown in it, or its
// own.
func TextOf(err error) string {
	if text, ok := ShownText(err); ok {
		return text
	}
	return err.Error()
}

// ShownText returns the text of a Shown in err, if there is one.
func ShownText(err error) (text string, ok bool) {
	var s *Shown
	if !errors.As(err, &s) {
		return "", false
	}
	return s.Text, true
}
