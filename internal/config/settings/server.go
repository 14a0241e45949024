package settings

import (
	"net"
	"strconv"
	"strings"

	"keelson/internal/config"
	"keelson/internal/serve/server"
	"keelson/internal/serve/server/access"
)

// Server holds the addresses of the server and the handlers that are enabled.
func Server(c *config.Config) server.Config {
	k := &c.Kubelet
	out := server.Config{
		Handlers: server.Handlers{
			DebuggingHandlers: *k.EnableDebuggingHandlers,
			ProfilingHandler:  *k.EnableProfilingHandler,
			DebugFlagsHandler: *k.EnableDebugFlagsHandler,
			SystemLogHandler:  *k.EnableSystemLogHandler,
			SystemLogDir:      "/var/log",
			SystemLogQuery:    *k.EnableSystemLogQuery,
			SplitLogStreams:   c.Gates.Enabled("PodLogsQuerySplitStreams"),
			ExtendWebSockets:  c.Gates.Enabled("ExtendWebSocketsToKubelet"),
			StreamIdleTimeout: k.StreamingConnectionIdleTimeout.Duration,
		},
		About: server.About{
			Version: strings.TrimPrefix(c.Version, "v"),
			Release: Version(c),
			Status:  c.Gates.Enabled("ComponentStatusz"),
		},
	}
	if c.Gates.Enabled("ComponentFlagz") {
		out.About.Flags = c.CommandLine
	}
	if *k.HealthzPort > 0 {
		out.HealthzAddress = net.JoinHostPort(k.HealthzBindAddress, strconv.Itoa(int(*k.HealthzPort)))
	}
	if k.ReadOnlyPort > 0 {
		out.ReadOnlyAddress = net.JoinHostPort(k.Address, strconv.Itoa(int(k.ReadOnlyPort)))
	}
	if *k.EnableServer {
		out.Address = net.JoinHostPort(k.Address, strconv.Itoa(int(k.Port)))
	}
	return out
}

// Authenticator is how requests to the server are authenticated.
func Authenticator(c *config.Config) access.AuthenticatorConfig {
	a := &c.Kubelet.Authentication
	return access.AuthenticatorConfig{Anonymous: *a.Anonymous.Enabled, TokenTTL: a.Webhook.CacheTTL.Duration}
}

// Authorizer is how requests to the server are authorised by the API server; ok is false if all are allowed.
func Authorizer(c *config.Config) (out access.AuthorizerConfig, ok bool) {
	a := &c.Kubelet.Authorization
	return access.AuthorizerConfig{
		NodeName:   c.NodeName,
		AllowedTTL: a.Webhook.CacheAuthorizedTTL.Duration,
		DeniedTTL:  a.Webhook.CacheUnauthorizedTTL.Duration,
	}, a.Mode != "AlwaysAllow"
}
