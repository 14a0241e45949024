package access

// Well-known users, groups and keys.
const (
	anonymousUser        = "system:anonymous"
	groupAuthenticated   = "system:authenticated"
	groupUnauthenticated = "system:unauthenticated"
	credentialIDKey      = "authentication.kubernetes.io/credential-id"
)

// Metric names.
const (
	metricAuthnRequests   = "apiserver_delegated_authn_request_total"
	metricAuthnDuration   = "apiserver_delegated_authn_request_duration_seconds"
	metricAuthzRequests   = "apiserver_delegated_authz_request_total"
	metricAuthzDuration   = "apiserver_delegated_authz_request_duration_seconds"
	metricTokenRequests   = "authentication_token_cache_request_total"
	metricTokenDuration   = "authentication_token_cache_request_duration_seconds"
	metricTokenFetches    = "authentication_token_cache_fetch_total"
	metricTokenActive     = "authentication_token_cache_active_fetch_count"
	metricClientCertsLeft = "apiserver_client_certificate_expiration_seconds"
)
