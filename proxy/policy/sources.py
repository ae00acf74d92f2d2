"""The key ``source``: where the records come from, its keys fitting one another and the engine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from proxy.errors import PolicyError
from proxy.policy.document import Item
from proxy.policy.faults import Unread
from proxy.policy.lakes import HINT, in_lake, lake
from proxy.policy.model import Source

DATABASES = (".duckdb", ".db", ".ddb")
FILES = (".csv", ".csv.gz", ".parquet")
SECRET_OPTION = re.compile("pass|pwd|secret|token|credential|odbc_connect", re.I)
SECRET = re.compile(r"password\s*=|://[^/@]*:[^/@]*@", re.I)  # in a connection string
OWN = {"dsn": "postgres", "url": "sqlalchemy", "master": "spark"}  # keys of one engine
MARIADB = "mysql+pymysql://"
OPTIONS = ("read_default_file", "read_default_group", "unix_socket", "connect_timeout",
           "ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_verify_cert",
           "ssl_check_hostname")  # fmt: skip
SECRET_OF_SPARK = re.compile(r"@|\b(token|password|user_id)\s*=", re.I)  # in a master
MASTER = re.compile(r"local(\[.+\])?|yarn|(spark|k8s|sc)://\S+")


def place(folder: Path, path: str) -> Path:
    """Return a path of the policy, which begins at the policy's folder."""
    return Path(os.path.normpath(folder / path))


def source_of(policy: Item, folder: Path) -> Source:
    """Return where the records come from: keys that fit one another and the engine."""
    item = policy.value["source"]
    engine, before = item.get("engine"), len(item.faults.errors)
    path, table, query = (item.get(key) for key in ("path", "table", "query"))
    dsn, url = item.get("dsn"), item.get("url")
    master = item.get("master")
    if table and query:
        item.value["query"].report("table is there too; keep one of the two")
    if path and engine in ("postgres", "sqlalchemy"):
        own = next(key for key, of in OWN.items() if of == engine)
        item.value["path"].report(f"engine {engine} connects by {own}; leave path out")
    elif path and "://" in path:
        raise item.value["path"].error("a path on this host is expected, not a URL")
    for key, of in OWN.items():
        if item.get(key) and of != engine:
            item.value[key].report(f"engine {engine} has no use for it; leave {key} out")
    match engine:
        case "duckdb":
            _files(item, folder)
        case "postgres":
            _dsn(item)
        case "sqlalchemy":
            if not url:
                raise item.error(f"engine sqlalchemy needs url: {MARIADB}user@host/database")
            url = _url(item.value["url"], folder)
        case "spark":
            _spark(item)
            master = master or "local[*]"
    if engine != "duckdb" and not (path or table or query):
        raise item.error(f"engine {engine} needs {'path, ' * (engine == 'spark')}table or query")
    if len(item.faults.errors) > before:
        raise Unread
    promises = {
        key: tuple(name.value for name in item.get(key) or ()) for key in ("public", "trusted")
    }
    return Source(
        engine, place(folder, path) if path else None, table, query, dsn or url, master, **promises
    )


def _files(item: Item, folder: Path) -> None:
    """Check what is said of files that DuckDB reads."""
    path, table = item.get("path"), item.get("table")
    if not path:
        raise item.error("engine duckdb needs path: the data file")
    database = path.lower().endswith(DATABASES)
    if not database and not path.lower().endswith(FILES):
        known = ", ".join(FILES + DATABASES)
        at, here = item.value["path"], place(folder, path)
        if here.is_dir() and (found := lake([here])) is not None:
            raise PolicyError(in_lake(*found), file=at.file, line=at.line, key=at.key, hint=HINT)
        raise at.error(f"the file's name ends in none of {known}")
    if database and not (table or item.get("query")):
        raise item.error("a DuckDB database needs table or query")
    if table and not database:
        item.value["table"].report("a file is a single table; leave table out")
    for key in ("public", "trusted") if not database else ():
        if key in item.value:
            item.value[key].report(f"a file is a single table; leave {key} out")


def _dsn(item: Item) -> None:
    """Check how PostgreSQL is found: without a password."""
    dsn = item.get("dsn")
    if not dsn:
        raise item.error("engine postgres needs dsn: host=… dbname=…")
    if SECRET.search(dsn) or SECRET.search(unquote(dsn)):
        raise item.value["dsn"].error(
            "it has a password in it, which a policy may not hold; leave it to PGPASSWORD, "
            "a password file (PGPASSFILE) or a service file (service=…)"
        )


def _spark(item: Item) -> None:
    """Check what is said of Spark, and of files that it reads."""
    path, master = item.get("path"), item.get("master")
    if path and item.get("table"):
        item.value["table"].report("files are a single table; leave table out")
    for key in ("public", "trusted"):
        if key in item.value:
            item.value[key].report(f"engine spark does not know such tables yet; leave {key} out")
    if master and (SECRET_OF_SPARK.search(master) or not MASTER.fullmatch(master)):
        raise item.value["master"].error(
            "local[*], spark://host:port, yarn, k8s://… or sc://host:port is expected, without "
            "a user or a token; leave a token to SPARK_CONNECT_AUTHENTICATE_TOKEN"
        )
    if path and os.path.splitext(path)[1].lower() not in ("", ".parquet"):
        raise item.value["path"].error("Spark reads Parquet files, or a folder of them, here")


def _url(item: Item, folder: Path) -> str:
    """Return the URL of a source, checked: without a password; a file's begins at the policy's.

    MariaDB, where records are grouped, takes known options only; of other databases every driver
    has options of its own.
    """
    try:
        parts = urlsplit(item.value)
        options = parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        raise item.error(f"{MARIADB}user@host/database is expected") from None
    secret = parts.password is not None or any(map(SECRET_OPTION.search, options))
    if secret or SECRET.search(unquote(item.value)):
        raise item.error(
            "it has a password in it, which a policy may not hold; leave it to the environment: "
            "SOURCE_PASSWORD, or of MariaDB MYSQL_PWD or an option file: ?read_default_file=/path"
        )
    if parts.scheme.startswith("postgres"):
        raise item.error("PostgreSQL groups the records itself, with engine postgres")
    if parts.scheme.startswith("sqlite"):
        if parts.scheme != "sqlite" or parts.netloc or options or len(parts.path) < 2:
            raise item.error("sqlite:///path is expected, of a file of SQLite's")
        return f"sqlite:///{place(folder, unquote(parts.path[1:]))}"
    if not parts.scheme or not parts.netloc:
        raise item.error("a URL of SQLAlchemy's is expected: dialect+driver://user@host/database")
    if parts.scheme in ("mysql+pymysql", "mariadb+pymysql"):
        if not parts.path.strip("/"):
            raise item.error(f"it names no database: {MARIADB}user@host/database")
        if unknown := options.keys() - OPTIONS:
            known = ", ".join(OPTIONS)
            raise item.error(f"the option {min(unknown)[:40]} is not known; known are {known}")
    text: str = item.value
    return text
