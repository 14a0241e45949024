// Package record remembers with which credentials images were pulled, so that a
// pod does not get at a private image of another only because it is on the node.
//
// It owns two directories below <root>/image_manager, whose files outside tools
// may read: pulling holds an intent for each name that is being pulled, pulled a
// record for each image that was. They are read once, at the start; after that
// memory answers and the files follow. An image of which there is neither was
// not pulled by this agent; see [Policy] for what that means.
//
// A file is written beside its place and renamed, so it is there whole or not at
// all. Nothing waits for the disk: Run has written files flushed in the
// background. What a crash of the machine may take away in the meantime makes an
// image look like one that was there before the agent.
//
// Lock order: Store.mu only.
package record
