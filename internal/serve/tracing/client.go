package tracing

import (
	"context"
	"fmt"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// serviceConfig is the gRPC service config: calls wait for the collector, and retryable errors of the protocol are
// retried.
const serviceConfig = `{"methodConfig": [{"name": [{}], "timeout": "10s", "waitForReady": true, "retryPolicy": {"maxAttempts": 5,
	"initialBackoff": "0.5s", "maxBackoff": "5s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"]}}]}`

// client calls the collector.
type client struct{ conn *grpc.ClientConn }

func newClient(endpoint string) (*client, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(serviceConfig))
	return &client{conn}, err
}

// Start does nothing. The connection is made by the first call.
func (c *client) Start(context.Context) error { return nil }

// Stop closes the connection.
func (c *client) Stop(context.Context) error { return c.conn.Close() }

// UploadTraces exports spans. The request has the same format as TracesData. Of the answer only rejected spans matter.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	var answer emptypb.Empty
	if err := c.conn.Invoke(ctx, exportMethod, &tracepb.TracesData{ResourceSpans: spans}, &answer); err != nil {
		return fmt.Errorf("export spans: %w", err)
	}
	if n, why := rejectedSpans(answer.ProtoReflect().GetUnknown()); n > 0 {
		return fmt.Errorf("export spans: the collector rejected %d: %s", n, why)
	}
	return nil
}

// rejectedSpans parses partial_success (field 1 of the answer): rejected_spans (1) and error_message (2).
func rejectedSpans(answer []byte) (n uint64, why string) {
	fields(answer, func(num protowire.Number, _ uint64, partial []byte) {
		if num == 1 {
			fields(partial, func(num protowire.Number, v uint64, text []byte) {
				switch num {
				case 1:
					n = v
				case 2:
					why = string(text)
				}
			})
		}
	})
	return n, why
}

// fields calls f for each varint or bytes field of a message. It stops at invalid data.
func fields(b []byte, f func(num protowire.Number, v uint64, text []byte)) {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		var v uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return
		}
		f(num, v, text)
		b = b[n:]
	}
}
