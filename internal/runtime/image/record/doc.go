// Package record keeps pull records: the credentials with which images were pulled. A pod does not
// get access to a private image just because another pod's pull put it on the node.
//
// It owns two directories below <root>/image_manager, whose files other tools may read: pulling
// holds an intent for each image being pulled, pulled a record for each pulled image. They are read
// once at startup; from then on memory is authoritative and files are written through. An image
// with neither was not pulled by this agent; see [Policy] for the consequence.
//
// Files are replaced atomically. Callers do not wait for fsync: Run flushes written files in the
// background. An image whose record is lost in a crash of the machine counts as preloaded.
//
// Lock order: Store.mu only.
package record
