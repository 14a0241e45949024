// Package orphan finds orphaned pods, which earlier agents left on the node and which no source has any more: by their
// directories, cgroups and logs. The syncer adopts them, so that workers clean them up. This is done once, when the
// runtime was listed and all sources have synced. The package has no lock.
package orphan
