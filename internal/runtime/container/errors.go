package container

import "keelson/internal/runtime/cri"

// StartError is why a container could not be started, in the words its status
// shows: one of the waiting reasons of package pod, and a message.
type StartError struct {
	Reason  string
	Message string
	Err     error // the cause, for the log; the message may have less or more of it
}

func (e *StartError) Error() string {
	if e.Err == nil {
		return e.Reason + ": " + e.Message
	}
	return e.Reason + ": " + e.Err.Error()
}
func (e *StartError) Unwrap() error { return e.Err }

// ignoreGone makes a verb on something that is gone a success.
func ignoreGone(err error) error {
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}
