"""Send each change to a Kafka topic, as JSON."""

from pathlib import Path
from typing import Any

from watcher import Record
from watcher.formatting.plain_records import plain_key, plain_line
from watcher.version import install

OPTIONS = {
    "kafka": (
        "BROKERS/TOPIC",
        "publish each change there, by the item's key",
    ),
    "kafka_config": ("FILE", "librdkafka's settings: NAME=VALUE lines"),
}
SECONDS = 30.0

producer: Any = None
topic = ""


def configure(kafka: str = "", kafka_config: str | None = None) -> None:
    global producer, topic
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError:
        raise ValueError(f"--kafka needs confluent-kafka: {install('kafka')}") from None
    brokers, _, topic = kafka.rpartition("/")
    if not brokers or not topic:
        raise ValueError("--kafka: give BROKERS/TOPIC, such as localhost:9092/changes")
    settings: dict[str, Any] = {
        "bootstrap.servers": brokers,
        "enable.idempotence": True,
        "linger.ms": 0,
        "delivery.timeout.ms": int(SECONDS * 1000),
        "client.id": "watcher",
    }
    try:
        producer = Producer(settings | (configured(kafka_config) if kafka_config else {}))
    except KafkaException as error:
        raise ValueError(f"--kafka {kafka}: {error.args[0].str()}") from None


def configured(file: str) -> dict[str, str]:
    lines = (line.strip() for line in Path(file).read_text().splitlines())
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def handle(record: Record) -> None:
    from confluent_kafka import KafkaException

    answers: list[Any] = []
    producer.produce(
        topic,
        plain_line(record).encode(),
        plain_key(record).encode(),
        on_delivery=lambda error, message: answers.append(error),
    )
    while not answers:  # until it is on its brokers, or has failed
        producer.poll(0.1)
    if answers[0] is not None:
        raise KafkaException(answers[0])


def close() -> None:
    global producer
    producer.flush(SECONDS)
    producer = None  # its threads would go on looking for the brokers
