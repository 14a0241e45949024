package container

import (
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// StartError is why a container could not be started.
type StartError struct {
	pod.Waiting
	Err error // the cause, for the log; it may differ from the message
}

func (e *StartError) Error() string {
	if e.Err == nil {
		return e.Reason + ": " + e.Message
	}
	return e.Reason + ": " + e.Err.Error()
}
func (e *StartError) Unwrap() error { return e.Err }

// ignoreNotFound returns nil for an error about an object that does not exist.
func ignoreNotFound(err error) error {
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}
