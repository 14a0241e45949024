// Package image ensures that the image of a container or image volume is present before the
// container is created.
//
// It owns the state of the pull per container and image volume, and the back-off per pod and image.
// It inspects and pulls images through the runtime, and reads credentials from pull secrets and
// other sources (see [Source]).
//
// The state of a pull request; Ensure is cheap and never blocks:
//
//	          ┌──────────── RetryAt ───────────┐
//	          ▼                                │
//	new ► working ──► ready        failed ◄────┤
//	          └────────────────────────►───────┘
//
// A request for another image, or for a new start of the container (a higher attempt), begins in
// the first state: the policy Always pulls once per start.
//
// Lock order: Manager.mu only. OnChange and events are sent without it.
package image
