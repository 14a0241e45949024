package differ

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"
)

// clock measures time, slowly while tasks wait for a CPU: on a busy machine nothing may change for a while because an
// agent cannot run, and not because it is at rest.
type clock struct {
	wall    func() time.Time
	waiting func() time.Duration // for how long some task has waited for a CPU since the machine was started

	mu     sync.Mutex
	at     time.Time     // when waited was read last
	waited time.Duration // its value at that time
	count  time.Duration // the clock at that time
	speed  float64       // of the clock since that time
	last   time.Duration // the last time that now returned
}

// sample is how often the speed is computed.
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

// speed is the clock's speed while some task waits for a CPU for this share of the time. A share of one half is usual
// where several histories run at the same time.
func speed(share float64) float64 { return min(1, max(0.1, 2*(1-share))) }

// pressure is the total of the kernel's pressure stall information for CPU, or 0 if the kernel has none.
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
