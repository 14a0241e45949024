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

// failed wraps the error of a call. The gRPC status stays accessible.
func failed(verb, object string, err error) error {
	if object == "" {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return fmt.Errorf("%s %s: %w", verb, object, err)
}

// identified returns an error for a response without the ID that callers need.
func identified[T any](resp *T, err error, id func(*T) string, verb, object string) (*T, error) {
	if err == nil && id(resp) == "" {
		return nil, failed(verb, object, errNoID)
	}
	return resp, err
}

var errNoID = errors.New("the container runtime answered without an id")

// IsNotFound reports whether the object of the call does not exist.
func IsNotFound(err error) bool { return code(err) == codes.NotFound }

// IsUnimplemented reports whether the runtime does not implement the call.
func IsUnimplemented(err error) bool { return code(err) == codes.Unimplemented }

// IsUnavailable reports whether the runtime could not be reached.
func IsUnavailable(err error) bool { return code(err) == codes.Unavailable }

// IsTimeout reports whether the call exceeded its deadline.
func IsTimeout(err error) bool { return code(err) == codes.DeadlineExceeded }

// IsCanceled reports whether the call was cancelled by its caller, or not made because its context
// had ended.
func IsCanceled(err error) bool {
	return code(err) == codes.Canceled || errors.Is(err, context.Canceled)
}

// IsNameTaken reports whether the runtime has, or is creating, a sandbox or container of the same
// name and attempt. This happens after an agent was killed during the call. containerd and CRI-O
// only indicate it in the message.
func IsNameTaken(err error) bool {
	return code(err) == codes.Unknown && nameTaken.MatchString(Message(err))
}

var nameTaken = regexp.MustCompile(`\bname\b.* is reserved\b`)

// code returns the gRPC status code of err, Unknown if it has none.
func code(err error) codes.Code { return status.Code(err) }

// Cause returns the runtime's own error without the prefix of this package. Its text is the one
// that events show: "rpc error: code = Unknown desc = …". An error without a gRPC status is
// returned as it is.
func Cause(err error) error {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Err()
	}
	return err
}

// Text returns the text of an error for an event: the one that it carries for users, or else the
// runtime's.
func Text(err error) string {
	if text, ok := pod.ShownText(err); ok {
		return text
	}
	return Cause(err).Error()
}

// Message returns the text of an error for a container status: the one that it carries for users,
// or else the runtime's message without the status code.
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

// outOfTime returns the same error for a call that exceeded its deadline whether the client or the
// server noticed first. The server resets the stream at the deadline.
func outOfTime(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() == codes.DeadlineExceeded &&
		strings.Contains(s.Message(), "RST_STREAM") {
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	return err
}
