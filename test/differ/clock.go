package differ

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"
)

// clock counts the time that the machine has for the agents. While tasks wait for a processor it is slow: on a busy
// machine nothing may change for a while because an agent cannot run, and not because it is at rest.
type clock struct {
	wall    func() time.Time
	waiting func() time.Duration // for how long some task has waited for a processor, since the machine was started

	mu     sync.Mutex
	at     time.Time     // when waited was read
	waited time.Duration // then
	count  time.Duration // until then
	speed  float64       // since then
	last   time.Duration // that was reported
}

// sample is how long the speed stays as it is.
const sample = 250 * time.Millisecond

func newClock() *clock { return &clock{wall: time.Now, waiting: pressure, speed: 1} }

// now is the time since the clock was read first.
func (c *clock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.wall()
	if c.at.IsZero() {
		c.at, c.waited = wall, c.waiting()
	}
	passed := wall.Sub(c.at)
	if passed >= sample {
		waited := c.waiting()
		c.speed = speed(float64(waited-c.waited) / float64(passed))
		c.count += time.Duration(c.speed * float64(passed))
		c.at, c.waited, passed = wall, waited, 0
	}
	c.last = max(c.last, c.count+time.Duration(c.speed*float64(passed)))
	return c.last
}

// speed is that of the clock while some task waits for a processor for this share of the time. That some do for half of
// it is usual where several histories are lived at once.
func speed(share float64) float64 { return min(1, max(0.1, 2*(1-share))) }

// pressure is the kernel's count of pressure stall information, or 0 if it has none.
func pressure() time.Duration {
	data, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	_, total, _ := bytes.Cut(data, []byte("total="))
	var us int64
	if _, err := fmt.Sscan(string(total), &us); err != nil {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}
