package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// service is the health service of one name. It is not serving while a file exists.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
	name, file string
}

func (s service) Check(
	_ context.Context, r *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	if r.Service != s.name {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", r.Service)
	}
	answer := &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}
	if _, err := os.Stat(s.file); err == nil {
		answer.Status = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	return answer, nil
}

// health serves until SIGTERM.
func health(args []string) int {
	l, err := net.Listen("tcp", ":"+arg(args, 1, "8080"))
	if err != nil {
		return fail(err)
	}
	srv := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(srv, service{name: arg(args, 0, ""), file: arg(args, 2, "/data/ill")})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer context.AfterFunc(ctx, srv.Stop)()
	fmt.Println("health on", l.Addr())
	if err := srv.Serve(l); err != nil {
		return fail(err)
	}
	return 0
}
