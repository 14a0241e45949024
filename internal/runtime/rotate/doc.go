// Package rotate keeps the logs of running containers from growing without end.
//
// It owns the files beside a live log; the live log is the runtime's. It reads
// which containers run from its caller and, for each of them, looks at the size
// of one file every period: a container that does not run writes nothing.
//
// The files of one log, oldest last:
//
//	3.log                          written by the runtime
//	3.log.20260102-030405          the newest rotated one, plain: the runtime may
//	                               still hold back some last lines for it
//	3.log.20260102-020000.gz       older ones
//	3.log.20260102-010000.tmp      being compressed, or left by an agent that died
//
// A rotation is: rename the live log, have the runtime open a new one, then tidy
// (remove what is too old or left over, compress what was plain before). If the
// runtime does not open one, the live log gets its name back, unless there is a
// new one by then. Names sort by age, also where a clock does not go on: the time in
// a name is later than it was where an older file has that of the future.
//
// A log that grows faster than its limit allows in a period is looked at more
// often, at most once a second, and what is to be compressed waits until it is
// calmer: the room that a container's log takes is bounded by the files it may
// have, each of the limit and what is written in a second.
//
// Beside that, Usage tells scrapers how much room the logs take up.
//
// Whoever shares a directory of logs with a container shares it with whatever
// that container puts there: nothing outside of the directory of all logs is
// touched, and only regular files are.
//
// Rotator.mu guards which logs are being worked on; nothing is called under it.
package rotate
