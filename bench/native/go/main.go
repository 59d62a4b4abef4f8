// The clients of the peers that have their best client in Go: each verb is a process of its own.
//
//	peers VERB URL [name=number ...]
//
// prints one JSON object of figures, as peer_clients.py does; a verb is a broker's name and what is
// done, as redis_sends. The loads are those of peer_clients.py: sends, bulk, consume, end_to_end,
// topics. Every message is made inside the timing.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	queue = "orders"
	group = "billing"
	small = 100
	large = 1024
)

type figures map[string]float64

// options are the numbers of the command line.
type options map[string]float64

func (o options) count(name string) int {
	value, given := o[name]
	if !given {
		fail(fmt.Errorf("%s=number is missing", name))
	}
	return int(value)
}

func (o options) time(name string) time.Duration {
	value, given := o[name]
	if !given {
		fail(fmt.Errorf("%s=number is missing", name))
	}
	return time.Duration(value * float64(time.Second))
}

// broker is what each client can do. A peer of which one is made has its queue: making one returns
// when that can be used, or an error if the peer is not ready yet; see patiently.
type broker interface {
	// send sends one message and returns when the broker has answered that it is durable.
	send(body []byte) error
	// bulk sends messages of 100 bytes; so many are under way at a time.
	bulk(count, underWay int) error
	// consume takes messages by so many and acknowledges them, and calls taken for each batch.
	consume(of int, taken func(count int) bool) error
	// subscribe calls taken with each message, and acknowledges it.
	subscribe(taken func(body []byte)) error
	// topics makes topics and sends one message to each; so many are under way at a time.
	topics(count, underWay int) error
	close()
}

var brokers = map[string]func(url string) (broker, error){
	"redis":           newRedis,
	"nats":            newNATS,
	"rabbitmq":        func(url string) (broker, error) { return newRabbit(url, "classic") },
	"rabbitmq_quorum": func(url string) (broker, error) { return newRabbit(url, "quorum") },
}

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("usage: peers VERB URL [name=number ...]"))
	}
	given := options{}
	for _, one := range os.Args[3:] {
		name, number, _ := strings.Cut(one, "=")
		value, err := strconv.ParseFloat(number, 64)
		check(err)
		given[name] = value
	}
	loads := map[string]func(func() broker, options) figures{
		"_sends": sends, "_bulk": bulk, "_consume": consume, "_end_to_end": endToEnd, "_topics": topics,
	}
	for load, run := range loads {
		name, found := strings.CutSuffix(os.Args[1], load)
		connect := brokers[name]
		if !found || connect == nil {
			continue
		}
		told, err := json.Marshal(run(func() broker {
			return patiently(patience, func() (broker, error) { return connect(os.Args[2]) })
		}, given))
		check(err)
		fmt.Println(string(told))
		return
	}
	fail(fmt.Errorf("no verb %s", os.Args[1]))
}

// body makes a message: its number, and what fills it.
func body(number uint64, size int) []byte {
	made := make([]byte, size)
	binary.LittleEndian.PutUint64(made, number)
	for at := 8; at < size; at++ {
		made[at] = 'x'
	}
	return made
}

func sends(connect func() broker, given options) figures {
	connections, inFlight := given.count("connections"), given.count("in_flight")
	clients := make([]broker, connections)
	for at := range clients {
		clients[at] = connect()
	}
	began := time.Now().Add(given.time("warm"))
	until := began.Add(given.time("seconds"))
	var lock sync.Mutex
	var all []float64
	var count atomic.Uint64
	var lanes sync.WaitGroup
	for _, client := range clients {
		for range inFlight {
			lanes.Go(func() {
				var taken []float64
				for {
					at := time.Now()
					if !at.Before(until) {
						break
					}
					check(client.send(body(count.Add(1), large)))
					if !at.Before(began) {
						taken = append(taken, time.Since(at).Seconds())
					}
				}
				lock.Lock()
				all = append(all, taken...)
				lock.Unlock()
			})
		}
	}
	lanes.Wait()
	for _, client := range clients {
		client.close()
	}
	return figures{
		"per_s":  float64(len(all)) / given["seconds"],
		"p50_ms": percentile(all, 0.5) * 1e3,
		"p99_ms": percentile(all, 0.99) * 1e3,
		"count":  float64(count.Load()),
	}
}

func bulk(connect func() broker, given options) figures {
	client := connect()
	defer client.close()
	count, of, warm := given.count("count"), given.count("of"), given.count("warm_count")
	check(client.bulk(warm, of))
	began := time.Now()
	check(client.bulk(count, of))
	return figures{
		"per_s": float64(count) / time.Since(began).Seconds(),
		"count": float64(count + warm),
	}
}

func consume(connect func() broker, given options) figures {
	client := connect()
	defer client.close()
	count, warm := given.count("count"), given.count("warm_count")
	done := 0
	var began, ended time.Time
	first := 0
	check(client.consume(given.count("of"), func(taken int) bool {
		done += taken
		if began.IsZero() && done >= warm {
			began, first = time.Now(), done
		}
		ended = time.Now()
		return done < count
	}))
	return figures{
		"per_s": float64(done-first) / ended.Sub(began).Seconds(),
		"count": float64(done),
	}
}

func endToEnd(connect func() broker, given options) figures {
	producer, consumer := connect(), connect()
	defer producer.close()
	defer consumer.close()
	perS, warm, seconds := given["per_s"], given["warm"], given["seconds"]
	total := int(perS * (warm + seconds))
	skipped := int(perS * warm)
	taken := make([]float64, total)
	var received atomic.Int64
	all := make(chan struct{})
	var began atomic.Pointer[time.Time]
	due := func(number int) time.Time {
		return began.Load().Add(time.Duration(float64(number) / perS * float64(time.Second)))
	}
	check(consumer.subscribe(func(body []byte) {
		number := int(binary.LittleEndian.Uint64(body))
		taken[number] = time.Since(due(number)).Seconds()
		if received.Add(1) == int64(total) {
			close(all)
		}
	}))
	first := time.Now().Add(100 * time.Millisecond) // the consumer is there, however long that took
	began.Store(&first)
	var sending sync.WaitGroup
	for number := range total {
		time.Sleep(time.Until(due(number)))
		sending.Go(func() { check(producer.send(body(uint64(number), large))) })
	}
	sending.Wait()
	select {
	case <-all:
	case <-time.After(patience):
		fail(fmt.Errorf("%d of %d messages came", received.Load(), total))
	}
	taken = taken[skipped:]
	return figures{
		"p50_ms": percentile(taken, 0.5) * 1e3,
		"p99_ms": percentile(taken, 0.99) * 1e3,
		"count":  float64(total),
	}
}

func topics(connect func() broker, given options) figures {
	client := connect()
	defer client.close()
	began := time.Now()
	check(client.topics(given.count("count"), given.count("of")))
	return figures{"seconds": time.Since(began).Seconds(), "count": given["count"]}
}

// each runs one for every number below count, so many at a time.
func each(count, underWay int, one func(number int) error) error {
	var next atomic.Int64
	var lanes sync.WaitGroup
	var first atomic.Pointer[error]
	for range underWay {
		lanes.Go(func() {
			for {
				number := int(next.Add(1)) - 1
				if number >= count || first.Load() != nil {
					return
				}
				if err := one(number); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	lanes.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

func percentile(values []float64, share float64) float64 {
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "peers:", err)
	os.Exit(1)
}
