package pod

import "errors"

// Shown is an error with two texts. Events and statuses show Text: upstream's words, which users search
// for, and nothing of the node's files that a pod is not to learn. The log shows Err, which names the step
// and the cause.
type Shown struct {
	Text string
	Err  error
}

// ShowAs is err with another text for events and statuses.
func ShowAs(text string, err error) error { return &Shown{Text: text, Err: err} }

func (s *Shown) Error() string { return s.Err.Error() }
func (s *Shown) Unwrap() error { return s.Err }

// TextOf is what events and statuses show of err: the text that it carries for them, or its own.
func TextOf(err error) string {
	if text, ok := ShownText(err); ok {
		return text
	}
	return err.Error()
}

// ShownText is the text that err carries for events and statuses, if it carries one.
func ShownText(err error) (text string, ok bool) {
	var s *Shown
	if !errors.As(err, &s) {
		return "", false
	}
	return s.Text, true
}
