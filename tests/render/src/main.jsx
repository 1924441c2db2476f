// Draws a recorded dashboard with Grafana's own components: window.BOARD is what record.py wrote.
import React from 'react';
import { createRoot } from 'react-dom/client';
import { firstValueFrom } from 'rxjs';
import {
  EventBusSrv, FieldType, ThemeContext, applyFieldOverrides, createTheme, dateTime, getDisplayProcessor, getFieldDisplayName,
  reduceField, standardFieldConfigEditorRegistry, standardTransformers, standardTransformersRegistry,
  transformDataFrame,
} from '@grafana/data';
import {
  BigValue, BigValueColorMode, BigValueGraphMode, BigValueJustifyMode, GlobalStyles, PanelChrome, PanelContextProvider,
  TimeSeries,
} from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

// The server fills this registry with editors; to draw, a property only has to be taken as it stands.
const PROPERTIES = ['unit', 'min', 'max', 'decimals', 'noValue', 'thresholds', 'mappings', 'displayName', 'color'];
standardFieldConfigEditorRegistry.setInit(() =>
  PROPERTIES.map((id) => ({ id, path: id, name: id, process: (value) => value, shouldApply: () => true, getItemsCount: () => 0 })),
);
standardTransformersRegistry.setInit(() =>
  [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer].map((each) => ({ id: each.id, name: each.name, transformation: async () => each, editor: null })),
);

const theme = createTheme({ colors: { mode: 'light' } });
const CELL = { width: 58, height: 38, gap: 8 };
const LINE = {
  drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 5, gradientMode: 'none', showPoints: 'never',
  pointSize: 5, spanNulls: false, axisPlacement: 'auto', axisLabel: '', axisColorMode: 'text', barAlignment: 0,
  scaleDistribution: { type: 'linear' }, hideFrom: { tooltip: false, viz: false, legend: false },
};

const legendOf = (answer, metric) => {
  const named = answer.legend?.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '');
  return named || answer.refId;
};

function overTime(panel) {
  const { defaults, overrides = [] } = panel.fieldConfig;
  const frames = panel.answers.flatMap((answer) =>
    answer.series.map(({ metric, values }) => {
      const name = legendOf(answer, metric);
      const config = { ...defaults, displayName: name, custom: { ...LINE, ...defaults.custom } };
      for (const each of overrides.filter((one) => one.matcher.options === name)) {
        for (const { id, value } of each.properties) {
          if (id.startsWith('custom.')) config.custom[id.slice(7)] = value;
          else config[id] = value;
        }
      }
      config.color ??= { mode: 'palette-classic' };
      return {
        refId: answer.refId,
        length: values.length,
        fields: [
          { name: 'Time', type: FieldType.time, config: {}, values: values.map(([at]) => at * 1000) },
          { name, type: FieldType.number, config, values: values.map(([, value]) => Number(value)) },
        ],
      };
    }),
  );
  return applyFieldOverrides({
    data: frames, fieldConfig: { defaults: {}, overrides: [] }, replaceVariables: (text) => text, theme,
    fieldConfigRegistry: standardFieldConfigEditorRegistry,
  });
}

const Empty = ({ panel }) => (
  <div style={{ color: theme.colors.text.secondary, textAlign: 'center', paddingTop: 24 }}>{panel.fieldConfig.defaults.noValue}</div>
);

function Lines({ panel, width, height }) {
  const frames = React.useMemo(() => overTime(panel), [panel]);
  if (!frames.length) return <Empty panel={panel} />;
  const times = frames.flatMap((frame) => frame.fields[0].values);
  const [from, to] = [dateTime(Math.min(...times)), dateTime(Math.max(...times))];
  const legend = { showLegend: true, displayMode: 'table', placement: 'bottom', calcs: [], ...panel.options?.legend };
  if (width < 420) Object.assign(legend, { displayMode: 'list', placement: 'bottom', calcs: [] });
  return (
    <TimeSeries frames={frames} width={width} height={height} timeZone="utc" legend={legend}
      timeRange={{ from, to, raw: { from, to } }} />
  );
}

function Stat({ panel, width, height }) {
  const frames = React.useMemo(() => overTime(panel), [panel]);
  if (!frames.length) return <Empty panel={panel} />;
  const count = frames.length;
  return (
    <div style={{ display: 'flex' }}>
      {frames.map((frame, number) => {
        const field = { ...frame.fields[1], config: { ...frame.fields[1].config, color: { mode: 'thresholds' } } };
        const last = reduceField({ field, reducers: ['lastNotNull'] }).lastNotNull;
        const shown = getDisplayProcessor({ field, theme })(last);
        if (count > 1 || panel.options?.textMode === 'value_and_name') shown.title = getFieldDisplayName(field, frame);
        return (
          <BigValue key={number} theme={theme} value={shown} width={width / count} height={height}
            colorMode={BigValueColorMode.Value} graphMode={BigValueGraphMode.Area} justifyMode={BigValueJustifyMode.Auto}
            sparkline={{ y: { ...field, config: { ...field.config, custom: undefined } }, x: frame.fields[0] }} />
        );
      })}
    </div>
  );
}

// A lone query's value has no letter: so Grafana's Prometheus data source names it.
const asTable = (answer, single) => {
  const labels = [...new Set(answer.series.flatMap(({ metric }) => Object.keys(metric)))].filter((each) => each !== '__name__');
  const column = (name, type, values) => ({ name, type, config: {}, values });
  return {
    refId: answer.refId,
    length: answer.series.length,
    fields: [
      column('Time', FieldType.time, answer.series.map(({ values }) => values[0][0] * 1000)),
      ...labels.map((name) => column(name, FieldType.string, answer.series.map(({ metric }) => metric[name] ?? ''))),
      column(single ? 'Value' : `Value #${answer.refId}`, FieldType.number, answer.series.map(({ values }) => Number(values[0][1]))),
    ],
  };
};

function Rows({ panel, width, height }) {
  const [frame, setFrame] = React.useState(null);
  React.useEffect(() => {
    const frames = panel.answers.filter((each) => each.series.length).map((each) => asTable(each, panel.answers.length === 1));
    firstValueFrom(transformDataFrame(panel.transformations ?? [], frames)).then(([joined]) => {
      if (!joined) return setFrame(false);
      const [ready] = applyFieldOverrides({
        data: [joined], fieldConfig: panel.fieldConfig, replaceVariables: (text) => text, theme,
        fieldConfigRegistry: standardFieldConfigEditorRegistry,
      });
      for (const field of ready.fields) {
        const heading = getFieldDisplayName(field, ready, [ready]);
        field.config.links = undefined;
        field.config.custom = { ...panel.fieldConfig.defaults.custom };
        field.getLinks = undefined;
        for (const each of panel.fieldConfig.overrides ?? []) {
          const cell = each.properties.find(({ id }) => id === 'custom.cellOptions');
          if (cell && each.matcher.options === heading) field.config.custom = { ...field.config.custom, cellOptions: cell.value };
        }
      }
      return setFrame(ready);
    });
  }, [panel]);
  if (frame === false) return <Empty panel={panel} />;
  return frame && <TableNG data={frame} width={width} height={height} cellHeight="sm" fieldConfig={panel.fieldConfig} enableVirtualization={false} />;
}

const KINDS = { timeseries: Lines, stat: Stat, table: Rows, 'state-timeline': Lines };

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const box = { left: x * CELL.width, top: y * CELL.height, width: w * CELL.width - CELL.gap, height: h * CELL.height - CELL.gap };
  const Kind = KINDS[panel.type];
  // Grafana publishes no state timeline outside of its server.
  const title = panel.type === 'state-timeline' ? `${panel.title} (drawn as lines: Grafana publishes no state timeline)` : panel.title;
  return (
    <div style={{ position: 'absolute', ...box }}>
      <PanelChrome title={title} description={panel.description} width={box.width} height={box.height}>
        {(width, height) => <Kind panel={panel} width={width} height={height} />}
      </PanelChrome>
    </div>
  );
}

const context = { eventsScope: 'global', eventBus: new EventBusSrv() };

function Board({ board }) {
  const rows = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <PanelContextProvider value={context}>
        <div style={{ padding: 12, background: theme.colors.background.canvas }}>
          <h3>{board.title}</h3>
          <div style={{ position: 'relative', width: 24 * CELL.width, height: rows * CELL.height }}>
            {board.panels.map((panel) => <Panel key={panel.id} panel={panel} />)}
          </div>
        </div>
      </PanelContextProvider>
    </ThemeContext.Provider>
  );
}

createRoot(document.getElementById('root')).render(<Board board={window.BOARD} />);
