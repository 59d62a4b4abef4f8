package main

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
)

// redisClient speaks to Redis by rueidis, whose goroutines share one connection: their commands
// leave together.
type redisClient struct{ rueidis.Client }

func newRedis(url string) (broker, error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	option.DisableCache = true
	option.PipelineMultiplex = -1 // one connection
	option.AlwaysPipelining = true
	client, err := rueidis.NewClient(option)
	return redisClient{client}, err
}

func (c redisClient) add(stream string, body []byte) rueidis.Completed {
	return c.B().Xadd().Key(stream).Id("*").FieldValue().FieldValue("b", rueidis.BinaryString(body)).Build()
}

func (c redisClient) send(body []byte) error {
	return c.Do(context.Background(), c.add(queue, body)).Error()
}

func (c redisClient) bulk(count, underWay int) error {
	for at := 0; at < count; at += underWay {
		commands := make(rueidis.Commands, 0, underWay)
		for number := range underWay {
			commands = append(commands, c.add(queue, body(uint64(at+number), small)))
		}
		for _, answer := range c.DoMulti(context.Background(), commands...) {
			if err := answer.Error(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c redisClient) group(start string) error {
	err := c.Do(context.Background(),
		c.B().XgroupCreate().Key(queue).Group(group).Id(start).Mkstream().Build()).Error()
	return err
}

// take reads up to so many messages and acknowledges them; the answer to that is awaited.
func (c redisClient) take(of int, each func(body []byte)) (int, error) {
	read := c.B().Xreadgroup().Group(group, "one").Count(int64(of)).Block(1000).
		Streams().Key(queue).Id(">").Build()
	found, err := c.Do(context.Background(), read).AsXRead()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ids := make([]string, 0, of)
	for _, row := range found[queue] {
		body := row.FieldValues["b"]
		if len(body) == 0 {
			return 0, fmt.Errorf("%s has no body", row.ID)
		}
		if each != nil {
			each([]byte(body))
		}
		ids = append(ids, row.ID)
	}
	err = c.Do(context.Background(), c.B().Xack().Key(queue).Group(group).Id(ids...).Build()).Error()
	return len(ids), err
}

func (c redisClient) consume(of int, taken func(count int) bool) error {
	if err := c.group("0"); err != nil {
		return err
	}
	for more := true; more; {
		count, err := c.take(of, nil)
		if err != nil {
			return err
		}
		more = taken(count)
	}
	return nil
}

func (c redisClient) subscribe(taken func(body []byte)) error {
	if err := c.group("$"); err != nil {
		return err
	}
	go func() {
		for {
			if _, err := c.take(1000, taken); err != nil {
				return // it was closed; if it was anything else, the messages that are missing tell
			}
		}
	}()
	return nil
}

func (c redisClient) topics(count, underWay int) error {
	return each(count, underWay, func(number int) error {
		stream := fmt.Sprintf("topic.%d", number)
		return c.Do(context.Background(), c.add(stream, body(uint64(number), small))).Error()
	})
}

func (c redisClient) close() { c.Close() }
