package tracing

import "go.opentelemetry.io/otel/attribute"

// DefaultEndpoint is the default endpoint of a collector.
const DefaultEndpoint = "localhost:4317"

// serviceName is the name of the agent in traces.
const serviceName = "kubelet"

// Attributes of spans, by the semantic conventions.
const (
	keyService    = attribute.Key("service.name")
	keyVersion    = attribute.Key("service.version")
	keyHost       = attribute.Key("host.name")
	keyMethod     = attribute.Key("http.request.method")
	keyStatus     = attribute.Key("http.response.status_code")
	keyRoute      = attribute.Key("http.route")
	keyURL        = attribute.Key("url.path")
	keyServer     = attribute.Key("server.address")
	keyRPCSystem  = attribute.Key("rpc.system")
	keyRPCService = attribute.Key("rpc.service")
	keyRPCMethod  = attribute.Key("rpc.method")
	keyRPCCode    = attribute.Key("rpc.grpc.status_code")
)

// exportMethod is the method that exports spans.
const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
