"""Amazon's own DynamoDB Local under the tests' control: real shards that roll over and age."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

import boto3
from botocore.config import Config

SCRIPT = Path(__file__).parents[2] / "scripts" / "dynamodb-local"
REGION = "us-east-1"
START_TIMEOUT = 60.0


class MissingPart(Exception):
    """DynamoDB Local can't run here; the message says why and what to do."""


def find() -> tuple[Path, str]:
    """Return DynamoDB Local's folder and the java to run it, or raise MissingPart."""
    # The script alone knows where things are, so that it and the tests never differ.
    done = subprocess.run([sys.executable, SCRIPT, "find"], capture_output=True, text=True)
    if done.returncode != 0:
        raise MissingPart(done.stderr.strip())
    folder, java = done.stdout.splitlines()
    return Path(folder), java


# One session, since reading the service's model is nearly all that a client costs; a lock, since
# sessions are not made for threads.
making_clients = threading.Lock()


@functools.cache
def session() -> Any:
    return boto3.Session(
        region_name=REGION, aws_access_key_id="local", aws_secret_access_key="local"
    )


class DynamoDBLocal:
    """One empty in-memory DynamoDB whose time can be moved, on a free port of loopback.

    All of them live in one JVM: the first takes a second or two, every later one milliseconds.
    """

    def __init__(self) -> None:
        self.port = 0
        self._server: Any = None
        self._database: Any = None

    def start(self) -> DynamoDBLocal:
        self._server, self._database, self.port = JVM.shared().new_server()
        return self

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def __enter__(self) -> DynamoDBLocal:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What makes an AWS program in a process of its own talk to this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "NO_PROXY": "127.0.0.1",
        }

    def client(self, service: str = "dynamodb", **config: Any) -> Any:
        """Return a new boto3 client for "dynamodb" or "dynamodbstreams"."""
        with making_clients:
            return session().client(
                service, endpoint_url=self.endpoint_url, config=Config(proxies={}, **config)
            )

    def create_table(
        self, name: str, view_type: str | None = "NEW_AND_OLD_IMAGES", *, sort_key: bool = True
    ) -> str:
        """Create a table with string keys PK and SK; return its stream's ARN ("" without one)."""
        keys = {"PK": "HASH", "SK": "RANGE"} if sort_key else {"PK": "HASH"}
        stream: dict[str, object] = {"StreamEnabled": view_type is not None}
        if view_type is not None:
            stream["StreamViewType"] = view_type
        answer = self.client().create_table(
            TableName=name,
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification=stream,
        )
        return str(answer["TableDescription"].get("LatestStreamArn", ""))

    def rollover(self) -> None:
        """Close every open shard of every stream and open its child."""
        self._database.triggerShardRollovers()

    def dilate_time(self, hours: float) -> None:
        """Make everything in this server that much older."""
        self._database.dilateEventTimes(int(hours * 3_600_000))


class JVM:
    """The Java process of all servers; it ends with this one, even if this one is killed."""

    _shared: JVM | None = None
    _lock = threading.RLock()

    @classmethod
    def shared(cls) -> JVM:
        with cls._lock:
            if cls._shared is None or cls._shared.process.poll() is not None:
                cls._shared = cls()
            return cls._shared

    def __init__(self) -> None:
        folder, java = find()
        try:
            # Not an import statement: py4j has no types, which is not worth a setting for mypy.
            py4j = importlib.import_module("py4j.java_gateway")
        except ImportError as error:
            raise MissingPart("py4j is missing: install the test requirements") from error
        library = folder / "DynamoDBLocal_lib"
        jars = [py4j.find_jar_path(), str(folder / "DynamoDBLocal.jar"), str(library / "*")]
        command = [
            java,
            "-XX:+UseSerialGC",  # starts fastest, and the optimizing compiler never pays here
            "-XX:TieredStopAtLevel=1",
            f"-Dsqlite4java.library.path={library}",
            "-Dorg.eclipse.jetty.LEVEL=WARN",
            "-classpath",
            os.pathsep.join(jars),
            "py4j.GatewayServer",
            "--die-on-broken-pipe",
            "--enable-auth",
            "0",
        ]
        # Files, not pipes: the JVM goes on although nobody reads what it says.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
                # Ctrl-C is for pytest: fixtures need the server while they clean up.
                start_new_session=True,
                env={**os.environ, "DDB_LOCAL_TELEMETRY": "0"},
            )
            port, token = self._first_lines(out, log)
        # The JVM ends when its stdin does, so when the last copy of our end is closed: forked
        # children, which inherit one, must not keep it alive.
        assert self.process.stdin is not None
        os.register_at_fork(after_in_child=self.process.stdin.close)
        parameters = py4j.GatewayParameters(
            port=int(port),
            auth_token=token,
            # Else the garbage collector of a forked child talks on our connection.
            enable_memory_management=False,
        )
        self._gateway: Any = py4j.JavaGateway(gateway_parameters=parameters)

    def new_server(self) -> tuple[Any, Any, int]:
        """Start one more server; return it, its database and its port."""
        local = self._gateway.jvm.com.amazonaws.services.dynamodbv2.local.server
        # Amazon's request dispatcher is static and made anew by each server.
        with self._lock:
            requests = local.LocalDynamoDBRequestHandler(0, True, None, True, False)
            server = local.DynamoDBProxyServer(0, local.LocalDynamoDBServerHandler(requests, "*"))
            connector = self._field(server, "server").getConnectors()[0]
            connector.setHost("127.0.0.1")
            server.safeStart()  # start() would send telemetry
        # The same as a PutItem to the table [TEST_CONTROL] with test controls switched on, but
        # in milliseconds instead of whole hours.
        database = self._call(requests, "getHandler", "")
        return server, database, int(connector.getLocalPort())

    def stop(self) -> None:
        self._gateway.close()
        self.process.kill()
        self.process.communicate()

    def _field(self, instance: Any, name: str) -> Any:
        """Return what is in a private field."""
        field = instance.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(instance)

    def _call(self, instance: Any, name: str, argument: str) -> Any:
        """Call a private method that takes a string."""
        java = self._gateway.jvm.java.lang
        types = self._gateway.new_array(java.Class, 1)
        types[0] = java.Class.forName("java.lang.String")
        arguments = self._gateway.new_array(java.Object, 1)
        arguments[0] = argument
        method = instance.getClass().getDeclaredMethod(name, types)
        method.setAccessible(True)
        return method.invoke(instance, arguments)

    def _first_lines(self, out: IO[bytes], log: IO[bytes]) -> tuple[str, str]:
        """Wait for the gateway's port and token."""
        deadline = time.monotonic() + START_TIMEOUT
        while self.process.poll() is None and time.monotonic() < deadline:
            # pread, since the JVM shares the file's offset and must go on where it was.
            if len(lines := os.pread(out.fileno(), 1000, 0).decode().split("\n")) > 2:
                return lines[0], lines[1]
            time.sleep(0.01)
        self.process.kill()
        self.process.communicate()
        reason = os.pread(log.fileno(), 2000, 0).decode(errors="replace")
        raise RuntimeError(f"DynamoDB Local's JVM did not start: {reason}")
