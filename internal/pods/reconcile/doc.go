// Package reconcile makes attempts at what has to be done for a key, such as a pod, a volume or a
// driver, and repeats them after failures.
//
// A [Reconciler] owns when an attempt is made. A key is in one of these states:
//
//	          request              End
//	(idle) ─────────────► running ─────► idle, running again, or waiting
//	  ▲                      ▲
//	  │ Forget               │ timer, request
//	  └───────────────── waiting
//
// There is at most one attempt for a key at a time. A request during an attempt leads to one more
// attempt after it, however many requests there were: the attempt may have begun before the change
// that was the reason for the request. Attempts for different keys do not wait for each other. There
// is one goroutine for a key with an attempt, none for others, and a timer for a key that waits.
//
// What the attempts are about belongs to the owner of the Reconciler. As a [sync.Cond], it uses the
// lock of its owner: the state of a key and what the owner knows about it change together. Methods
// whose names end in Locked are called with the lock held; [Config.Begin] and [Attempt.End] are
// called with it held, [Attempt.Do] and [Next.Then] without.
package reconcile
