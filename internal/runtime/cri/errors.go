package cri

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson/internal/pods/pod"
)

// failed wraps the error of a call; the gRPC status stays reachable.
func failed(verb, object string, err error) error {
	if object == "" {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return fmt.Errorf("%s %s: %w", verb, object, err)
}

// identified passes an answer on that names what it is about; one that does not
// is of no use to anybody.
func identified[T any](resp *T, err error, id func(*T) string, verb, object string) (*T, error) {
	if err == nil && id(resp) == "" {
		return nil, failed(verb, object, errNoID)
	}
	return resp, err
}

var errNoID = errors.New("the container runtime answered without an id")

// IsNotFound reports whether the runtime does not know the object of the call.
func IsNotFound(err error) bool { return code(err) == codes.NotFound }

// IsUnimplemented reports whether the runtime does not have the call.
func IsUnimplemented(err error) bool { return code(err) == codes.Unimplemented }

// IsUnavailable reports whether there was nobody to answer the call.
func IsUnavailable(err error) bool { return code(err) == codes.Unavailable }

// IsTimeout reports whether the call ran into its deadline.
func IsTimeout(err error) bool { return code(err) == codes.DeadlineExceeded }

// IsCanceled reports whether the call was cancelled by its caller, or not made because
// its context had ended.
func IsCanceled(err error) bool {
	return code(err) == codes.Canceled || errors.Is(err, context.Canceled)
}

// IsNameTaken reports whether the runtime has, or is just making, a sandbox or
// container of the same name and attempt, as it is when the agent that asked for
// it was killed meanwhile. containerd and CRI-O tell it by their words alone.
func IsNameTaken(err error) bool {
	return code(err) == codes.Unknown && nameTaken.MatchString(Message(err))
}

var nameTaken = regexp.MustCompile(`\bname\b.* is reserved\b`)

// code is the gRPC status of err, Unknown if it has none.
func code(err error) codes.Code { return status.Code(err) }

// Cause is the runtime's own error without what this package put before it.
// Its text is the one users know from events: "rpc error: code = Unknown desc
// = …". An error that has no gRPC status is returned as it is.
func Cause(err error) error {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Err()
	}
	return err
}

// Text is what an event shows of an error: the text that the error carries for it, or the runtime's own.
func Text(err error) string {
	if text, ok := pod.ShownText(err); ok {
		return text
	}
	return Cause(err).Error()
}

// Message is what a container's status shows of an error: the text that the error carries for it, or the
// sentence that the runtime wrote, without the code.
func Message(err error) string {
	if text, ok := pod.ShownText(err); ok {
		return text
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Message()
	}
	return err.Error()
}

// outOfTime gives a call that exceeded its deadline the same error whether this side or
// the runtime noticed it first: the runtime resets the stream at the deadline.
func outOfTime(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() == codes.DeadlineExceeded && strings.Contains(s.Message(), "RST_STREAM") {
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	return err
}
