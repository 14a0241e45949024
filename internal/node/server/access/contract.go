package access

// Users and groups every cluster knows.
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
	metricClientCertsLeft = "apiserver_client_certificate_expiration_seconds"
)
