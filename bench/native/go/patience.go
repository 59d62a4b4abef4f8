package main

import (
	"fmt"
	"time"
)

// patience is the longest that a broker may take until it can be used.
const patience = 30 * time.Second

// patiently calls made until it succeeds, outside the timing: a broker that takes connections may
// not be ready to make a topic. The last error ends the process when limit is over.
func patiently[T any](limit time.Duration, made func() (T, error)) T {
	until := time.Now().Add(limit)
	for {
		one, err := made()
		if err == nil {
			return one
		}
		if !time.Now().Before(until) {
			fail(fmt.Errorf("not ready within %s: %w", limit, err))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
