// Package orphan finds orphaned pods, which earlier agents left on the node and which no source has any more: by their
// directories, cgroups and logs. It has the syncer adopt them, so that workers clean them up. It does so once, when the
// runtime was listed and all sources have synced; it has no lock.
package orphan
