// Package poddir keeps the directories of pods, and the files in them that a later agent reads: which restarts are
// under way, and whether a pod was evicted. It removes the log directories and their symlinks, too.
//
// [Dirs] has no state and no lock; calls for one pod are ordered by its worker.
package poddir
