// Package dradriver is a DRA driver (dynamic resource allocation) for tests. It implements
// the real protocol, records every call, keeps which claims it has prepared, and fails,
// hangs or stops on request. It can write CDI specifications for a runtime to read.
package dradriver
