"""What a user of the mirror may call and see in ``pg_catalog``: a list, which the mirror enforces.

A function may be called that is on the list by its kind (it is immutable, an aggregate or a window
function, or stands behind an operator or a cast: its value comes of its arguments) or by its name.
Every other one is refused by PostgreSQL itself, in whatever form it is called: those that write,
notify, lock, export, read files or settings of the server, run texts as queries, and those that a
later version adds.  Views of ``pg_catalog`` that show other users show what is the reader's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.server.mirror.user_settings import DOTTED, NAMES, ONLY_OFF, ONLY_ON

_LIST = """
    aclexplode age array_sample array_shuffle array_to_json array_to_string clock_timestamp
    col_description concat concat_ws convert convert_from convert_to current_database current_query
    current_schema current_schemas current_setting current_user date_add date_part date_subtract
    date_trunc enum_first enum_last enum_range extract format format_type gen_random_uuid
    generate_series get_current_ts_config getdatabaseencoding getpgusername
    has_any_column_privilege has_column_privilege has_database_privilege
    has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege
    has_parameter_privilege has_schema_privilege has_sequence_privilege has_server_privilege
    has_table_privilege has_tablespace_privilege has_type_privilege in_range inet_client_addr
    inet_client_port inet_server_addr inet_server_port json_build_array json_build_object
    json_populate_record json_populate_recordset json_to_record json_to_recordset json_to_tsvector
    jsonb_build_array jsonb_build_object jsonb_path_exists_tz jsonb_path_match_tz
    jsonb_path_query_array_tz jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record
    jsonb_populate_record_valid jsonb_populate_recordset jsonb_to_record jsonb_to_recordset
    jsonb_to_tsvector length make_timestamptz mxid_age now obj_description oidvectortypes overlaps
    pg_advisory_unlock pg_advisory_unlock_all pg_advisory_unlock_shared
    pg_available_extension_versions pg_available_extensions pg_backend_pid pg_basetype
    pg_char_to_encoding pg_client_encoding pg_collation_actual_version pg_collation_for
    pg_collation_is_visible pg_column_compression pg_column_is_updatable pg_column_size
    pg_conf_load_time pg_conversion_is_visible pg_current_snapshot pg_current_xact_id
    pg_current_xact_id_if_assigned pg_cursor pg_database_collation_actual_version pg_database_size
    pg_describe_object pg_encoding_to_char pg_function_is_visible pg_get_acl
    pg_get_catalog_foreign_keys pg_get_constraintdef pg_get_expr pg_get_function_arg_default
    pg_get_function_arguments pg_get_function_identity_arguments pg_get_function_result
    pg_get_function_sqlbody pg_get_functiondef pg_get_indexdef pg_get_keywords pg_get_object_address
    pg_get_partition_constraintdef pg_get_partkeydef pg_get_publication_tables
    pg_get_replica_identity_index pg_get_ruledef pg_get_serial_sequence pg_get_statisticsobjdef
    pg_get_statisticsobjdef_columns pg_get_statisticsobjdef_expressions pg_get_triggerdef
    pg_get_userbyid pg_get_viewdef pg_has_role pg_identify_object pg_identify_object_as_address
    pg_index_column_has_property pg_index_has_property pg_indexam_has_property pg_indexes_size
    pg_input_error_info pg_input_is_valid pg_is_in_recovery pg_is_other_temp_schema
    pg_is_wal_replay_paused pg_jit_available pg_last_wal_receive_lsn pg_last_wal_replay_lsn
    pg_last_xact_replay_timestamp pg_listening_channels pg_my_temp_schema pg_opclass_is_visible
    pg_operator_is_visible pg_opfamily_is_visible pg_options_to_table pg_partition_ancestors
    pg_partition_tree pg_postmaster_start_time pg_prepared_statement pg_relation_is_publishable
    pg_relation_is_updatable pg_relation_size pg_sequence_last_value pg_sequence_parameters
    pg_settings_get_flags pg_show_all_settings pg_sleep pg_sleep_for pg_sleep_until
    pg_statistics_obj_is_visible pg_table_is_visible pg_table_size pg_tablespace_location
    pg_timezone_abbrevs pg_timezone_abbrevs_abbrevs pg_timezone_abbrevs_zone pg_timezone_names
    pg_total_relation_size pg_trigger_depth pg_ts_config_is_visible pg_ts_dict_is_visible
    pg_ts_parser_is_visible pg_ts_template_is_visible pg_type_is_visible pg_typeof
    phraseto_tsquery plainto_tsquery quote_literal quote_nullable random random_normal row_to_json
    row_security_active session_user setseed shobj_description statement_timestamp system_user
    timeofday timezone to_char to_date to_json to_jsonb to_number to_regclass to_regcollation
    to_regnamespace to_regoper to_regoperator to_regproc to_regprocedure to_regtype to_regtypemod
    to_timestamp to_tsquery to_tsvector transaction_timestamp ts_debug ts_headline ts_parse
    ts_token_type txid_current txid_current_if_assigned txid_current_snapshot uuidv4 uuidv7 version
    websearch_to_tsquery xml_is_well_formed
"""
FUNCTIONS = _LIST.split()

VIEWS = {  # of pg_catalog that name other users or show what they do: the rows that are left
    "pg_roles": "rolname = session_user OR oid < 16384",  # the others are PostgreSQL's own
    "pg_user": "usename = session_user",
    "pg_stat_activity": "usename = session_user",
    "pg_stat_ssl": "pid = pg_backend_pid()",
    "pg_locks": "pid = pg_backend_pid()",
}
COUNTERS = ("pg_stat_all_tables", "pg_stat_all_indexes")  # shared by all: no number is shown
NAMED = ("relid", "indexrelid", "schemaname", "relname", "indexrelname")


def _texts(values: Sequence[str]) -> str:
    return "'{" + ",".join(values) + "}'::text[]"


LISTED = f"""
(f.provolatile = 'i' OR f.prokind IN ('a', 'w') OR f.proname = ANY ({_texts(FUNCTIONS)})
 OR EXISTS (SELECT FROM pg_operator AS o WHERE o.oprcode = f.oid)
 OR EXISTS (SELECT FROM pg_cast AS c WHERE c.castfunc = f.oid))
"""  # whether a user may call the function f of pg_proc

REVOKE = f"""
DO $$ BEGIN
  EXECUTE (SELECT format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', string_agg(
             format('pg_catalog.%I(%s)', proname, pg_get_function_identity_arguments(oid)), ', '))
           FROM pg_proc AS f WHERE pronamespace = 'pg_catalog'::regnamespace AND NOT {LISTED});
END $$
"""

# The replacement runs as its owner, so it may set nothing that a user may not.
SET_CONFIG = f"""
ALTER FUNCTION pg_catalog.set_config(text, text, boolean) RENAME TO set_any_config;
CREATE FUNCTION pg_catalog.set_config(setting_name text, new_value text, is_local boolean)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS
$$ DECLARE wanted text = lower(setting_name); BEGIN
  IF NOT (wanted = ANY ({_texts(NAMES)}) OR wanted ~ '{DOTTED}')
     OR EXISTS (SELECT FROM pg_catalog.pg_settings AS s
                WHERE lower(s.name) = wanted AND s.context <> 'user')
     OR (wanted = ANY ({_texts(ONLY_ON)}) AND NOT new_value::boolean)
     OR (wanted = ANY ({_texts(ONLY_OFF)}) AND new_value::boolean) THEN
    RAISE EXCEPTION USING ERRCODE = '42501',
      MESSAGE = format('permission denied to set parameter "%s"', setting_name);
  END IF;
  RETURN pg_catalog.set_any_config(setting_name, new_value, is_local);
END $$
"""


def _own_rows(view: str, condition: str) -> str:
    """Return the statement that leaves a view its rows with a condition."""
    return f"""
DO $$ DECLARE columns text; shown text; definition text; BEGIN
  SELECT string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ', '
                    ORDER BY attnum),
         string_agg(format(CASE attcollation WHEN 0 THEN '%I' ELSE '%I COLLATE %s' END, attname,
                           attcollation::regcollation), ', ' ORDER BY attnum)
  INTO columns, shown
  FROM pg_attribute WHERE attrelid = 'pg_catalog.{view}'::regclass AND attnum > 0;
  definition := rtrim(pg_get_viewdef('pg_catalog.{view}'::regclass), ';');
  EXECUTE format($f$ CREATE FUNCTION privacy.{view}() RETURNS TABLE (%s) LANGUAGE sql STABLE
    SECURITY DEFINER AS $g$ SELECT * FROM (%s) AS v WHERE {condition} $g$ $f$, columns, definition);
  EXECUTE format('CREATE OR REPLACE VIEW pg_catalog.{view} AS SELECT %s FROM privacy.{view}()',
                 shown);
END $$
"""


def _without_numbers(view: str) -> str:
    """Return the statement that leaves a view of counters its names."""
    return f"""
DO $$ BEGIN
  EXECUTE (
    SELECT format('CREATE OR REPLACE VIEW pg_catalog.{view} AS SELECT %s FROM (%s) AS v',
      string_agg(CASE WHEN attname = ANY ({_texts(NAMED)}) THEN quote_ident(attname)
        ELSE format('NULL::%s AS %I', format_type(atttypid, atttypmod), attname) END, ', '
        ORDER BY attnum),
      rtrim(pg_get_viewdef(attrelid), ';'))
    FROM pg_attribute WHERE attrelid = 'pg_catalog.{view}'::regclass AND attnum > 0
    GROUP BY attrelid);
END $$
"""


STATEMENTS = [
    "SET allow_system_table_mods = on",
    SET_CONFIG,
    *(_own_rows(view, condition) for view, condition in VIEWS.items()),
    *(_without_numbers(view) for view in COUNTERS),
    REVOKE,
    "GRANT EXECUTE ON FUNCTION pg_catalog.set_config(text, text, boolean) TO PUBLIC",
    "REVOKE SELECT ON pg_catalog.pg_db_role_setting FROM PUBLIC",  # what each user begins with
    "RESET allow_system_table_mods",
]
