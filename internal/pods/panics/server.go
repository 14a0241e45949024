package panics

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Unary makes a gRPC server respond with an error when the handler of a call panics. It
// comes before the server's own interceptors, which have to be chained.
func Unary(log *slog.Logger, part string) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (answer any, err error) {
		err = answered(Try(log, part, func() (err error) {
			answer, err = next(ctx, req)
			return err
		}))
		return answer, err
	})
}

// Stream is [Unary] for calls that stream.
func Stream(log *slog.Logger, part string) grpc.ServerOption {
	return grpc.ChainStreamInterceptor(func(
		srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
	) error {
		return answered(Try(log, part, func() error { return next(srv, stream) }))
	})
}

// answered converts a panic to the error that the client receives.
func answered(err error) error {
	var panicked *Error
	if errors.As(err, &panicked) {
		return status.Error(codes.Internal, panicked.Error())
	}
	return err
}
