// Package image makes sure that the image of a container, or of an image volume,
// is there before the container is made.
//
// It owns, per container and image volume of a pod, how far the wish for an
// image has come, and per pod and image the back-off after a failed pull. It
// reads images and pulls them through the runtime, and reads credentials from
// pull secrets and from what else it was given (see [Source]).
//
// A wish goes this way; asking again is cheap and never waits:
//
//	          ┌──────────── RetryAt ───────────┐
//	          ▼                                │
//	new ► working ──► ready        failed ◄────┤
//	          └────────────────────────►───────┘
//
// A wish for another image, or for a new start of the container (a higher
// attempt), begins anew: the pull policy Always pulls once for each start.
//
// Lock order: Manager.mu only. OnChange and events are sent without it.
package image
